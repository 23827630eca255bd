package park

import (
	"bufio"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/idling"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/race"
)

// BenchmarkIdle measures the memory of a server process per idle connection. Each connection has had one request.
func BenchmarkIdle(b *testing.B) {
	for _, kind := range idleKinds {
		b.Run(kind.name, func(b *testing.B) {
			for b.Loop() {
				measureIdle(b, kind.name, kind.secure).Report(b)
			}
		})
	}
}

// A parked connection needs less than 1,200 live bytes. A parked HTTP connection needs less than a fifth of the live
// bytes of a net/http connection, and one that has sent nothing less than 800.
func TestIdleMemory(t *testing.T) {
	long.Only(t, "it makes 5,000 connections, four times")
	if race.Enabled {
		t.Skip("the memory of the race detector would be included")
	}
	idling.Enough(t)
	live := func(kind string) float64 { return measureIdle(t, kind, false).Live() }
	if n := live("park"); n > 1200 {
		t.Errorf("parked: %.0f bytes", n)
	}
	if n := live("silent in park HTTP"); n > 800 {
		t.Errorf("silent: %.0f bytes", n)
	}
	stock, ours := live("net/http"), live("park HTTP")
	if ours > stock/5 {
		t.Errorf("HTTP: %.0f bytes parked, %.0f with net/http", ours, stock)
	}
}

// A waiting request with a head of 700 bytes needs at most 2,100 live bytes, and 2,600 with TLS.
func TestSuspendMemory(t *testing.T) {
	long.Only(t, "it makes 5,000 connections, twice")
	if race.Enabled {
		t.Skip("the memory of the race detector would be included")
	}
	idling.Enough(t)
	if len(waitingRequest) != 700 {
		t.Fatalf("the head has %d bytes", len(waitingRequest))
	}
	for _, c := range []struct {
		kind   string
		secure bool
		limit  float64
	}{{"waiting in park HTTP", false, 2100}, {"waiting in park HTTP TLS", true, 2600}} {
		n := measureIdle(t, c.kind, c.secure).Live()
		t.Logf("%s: %.0f live bytes", c.kind, n)
		if n > c.limit {
			t.Errorf("%s: %.0f bytes, want at most %.0f", c.kind, n, c.limit)
		}
	}
}

// waitingRequest has a head as that of a browser.
var waitingRequest = request("GET", "/poll?topic=orders&last=1789",
	"Connection: keep-alive",
	`sec-ch-ua: "Chromium";v="140", "Not=A?Brand";v="24", "Google Chrome";v="140"`,
	"sec-ch-ua-mobile: ?0",
	`sec-ch-ua-platform: "Linux"`,
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
	"Accept: */*",
	"Sec-Fetch-Site: same-origin",
	"Sec-Fetch-Mode: cors",
	"Sec-Fetch-Dest: empty",
	"Referer: https://www.example.com/app/orders/overview",
	"Accept-Encoding: gzip, deflate, br, zstd",
	"Accept-Language: en-GB,en;q=0.9,de;q=0.8",
	"Cookie: session="+strings.Repeat("0123456789abcdef", 8)+"0123456")

func measureIdle(t testing.TB, kind string, secure bool) idling.Usage {
	t.Helper()
	return idling.Measure(t, kind, kind, strconv.FormatBool(secure))
}

// An idleKind is a server whose idle connections are measured.
type idleKind struct {
	name   string
	secure bool
	serve  func(net.Listener, tls.Certificate) (settled func() int)
}

var idleKinds = []idleKind{
	{"goroutine", false, serveBlocking(func(c net.Conn) (io.Reader, io.Writer, net.Conn) { return c, c, c })},
	{"goroutine with bufio", false, serveBlocking(func(c net.Conn) (io.Reader, io.Writer, net.Conn) {
		return bufio.NewReader(c), bufio.NewWriter(c), c
	})},
	{"park", false, serveParked(nil)},
	{"park Server", false, serveServer(false)},
	{"goroutine TLS", true, serveBlocking(nil)},
	{"park TLS", true, serveParked(func(c net.Conn, config *tls.Config) net.Conn { return TLSServer(c, config) })},
	{"park crypto/tls", true, serveParked(func(c net.Conn, config *tls.Config) net.Conn { return tls.Server(c, config) })},
	{"park Server TLS", true, serveServer(true)},
	{"net/http", false, serveStock(false)},
	{"park HTTP", false, serveHTTPServer(false, 0)},
	{"park HTTP at once", false, serveHTTPServer(false, -1)},
	{"net/http TLS", true, serveStock(true)},
	{"park HTTP TLS", true, serveHTTPServer(true, 0)},
	{"silent in net/http", false, serveSilent(false, false)},
	{"silent in park HTTP", false, serveSilent(false, true)},
	{"silent in net/http TLS", true, serveSilent(true, false)},
	{"silent in park HTTP TLS", true, serveSilent(true, true)},
	{"waiting in net/http", false, serveWaiting(false, false)},
	{"waiting in park HTTP", false, serveWaiting(false, true)},
	{"waiting in net/http TLS", true, serveWaiting(true, false)},
	{"waiting in park HTTP TLS", true, serveWaiting(true, true)},
}

// serveBlocking uses a goroutine and a buffer for each connection.
func serveBlocking(wrap func(net.Conn) (io.Reader, io.Writer, net.Conn)) func(net.Listener, tls.Certificate) func() int {
	return func(ln net.Listener, cert tls.Certificate) func() int {
		var answered atomic.Int64
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				go func() {
					var in io.Reader
					var out io.Writer
					if wrap == nil {
						conn = tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{cert}})
						in, out = conn, conn
					} else {
						in, out, conn = wrap(conn)
					}
					buf := make([]byte, 4096)
					for {
						n, err := in.Read(buf)
						if err != nil {
							return
						}
						out.Write(buf[:n])
						if w, ok := out.(*bufio.Writer); ok {
							w.Flush()
						}
						answered.Add(1)
					}
				}()
			}
		}()
		return func() int { return int(answered.Load()) }
	}
}

func serveParked(secure func(net.Conn, *tls.Config) net.Conn) func(net.Listener, tls.Certificate) func() int {
	return func(ln net.Listener, cert tls.Certificate) func() int {
		l, err := New(Config{})
		if err != nil {
			log.Fatal(err)
		}
		buffers := sync.Pool{New: func() any { return new([4096]byte) }}
		var answered atomic.Int64
		var serve func(net.Conn)
		serve = func(conn net.Conn) {
			buf := buffers.Get().(*[4096]byte)
			defer buffers.Put(buf)
			n, err := conn.Read(buf[:])
			if err != nil {
				conn.Close()
				return
			}
			conn.Write(buf[:n])
			l.Park(conn, serve)
			answered.Add(1)
		}
		config := &tls.Config{Certificates: []tls.Certificate{cert}}
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				if secure != nil {
					conn = secure(conn, config)
				}
				l.Park(conn, serve)
			}
		}()
		return func() int {
			if l.Stats().Running > 0 { // a function that has parked its connection still holds a buffer
				return 0
			}
			return min(int(answered.Load()), l.Stats().Parked)
		}
	}
}

func serveServer(secure bool) func(net.Listener, tls.Certificate) func() int {
	return func(ln net.Listener, cert tls.Certificate) func() int {
		buffers := sync.Pool{New: func() any { return new([4096]byte) }}
		var answered atomic.Int64
		s := &Server{TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}, Handler: func(conn net.Conn) error {
			buf := buffers.Get().(*[4096]byte)
			defer buffers.Put(buf)
			n, err := conn.Read(buf[:])
			if err == nil {
				_, err = conn.Write(buf[:n])
				answered.Add(1)
			}
			return err
		}}
		if secure {
			go s.ServeTLS(ln, "", "")
		} else {
			go s.Serve(ln)
		}
		return func() int {
			n := s.Stats()
			if n.Running > 0 {
				return 0
			}
			return min(int(answered.Load()), n.Parked)
		}
	}
}

func idleServer(secure bool, cert tls.Certificate, count *atomic.Int64) *http.Server {
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "x") })}
	if count != nil {
		srv.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateIdle {
				count.Add(1)
			}
		}
	}
	if secure {
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
	}
	return srv
}

func serveStock(secure bool) func(net.Listener, tls.Certificate) func() int {
	return func(ln net.Listener, cert tls.Certificate) func() int {
		var count atomic.Int64
		srv := idleServer(secure, cert, &count)
		if secure {
			go srv.ServeTLS(ln, "", "")
		} else {
			go srv.Serve(ln)
		}
		return func() int { return int(count.Load()) }
	}
}

func serveHTTPServer(secure bool, linger time.Duration) func(net.Listener, tls.Certificate) func() int {
	return func(ln net.Listener, cert tls.Certificate) func() int {
		s := &HTTPServer{Linger: linger, Server: idleServer(secure, cert, nil)}
		if secure {
			go s.ServeTLS(ln, "", "")
		} else {
			go s.Serve(ln)
		}
		return func() int { return s.Stats().Parked }
	}
}

// serveSilent serves clients that send nothing.
func serveSilent(secure, ours bool) func(net.Listener, tls.Certificate) func() int {
	return func(ln net.Listener, cert tls.Certificate) func() int {
		var accepted atomic.Int64
		srv := idleServer(secure, cert, nil)
		srv.ErrorLog = log.New(io.Discard, "", 0) // handshakes end with the clients
		srv.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				accepted.Add(1)
			}
		}
		s := &HTTPServer{Server: srv}
		serve, serveTLS := srv.Serve, srv.ServeTLS
		settled := func() int { return int(accepted.Load()) }
		if ours {
			serve, serveTLS = s.Serve, s.ServeTLS
			settled = func() int { return s.Stats().Parked }
		}
		if secure {
			go serveTLS(ln, "", "")
		} else {
			go serve(ln)
		}
		return settled
	}
}

// serveWaiting lets requests for /poll wait: on an HTTPServer, or in a goroutine each, for a channel,
// on an http.Server. /resume answers them, and /waiting says how many wait.
func serveWaiting(secure, ours bool) func(net.Listener, tls.Certificate) func() int {
	return func(ln net.Listener, cert tls.Certificate) func() int {
		var mu sync.Mutex
		var all []func()
		wait := func(resume func()) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, resume)
		}
		srv := idleServer(secure, cert, nil)
		s := &HTTPServer{Server: srv}
		serve, serveTLS := srv.Serve, srv.ServeTLS
		settled := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(all)
		}
		if ours {
			serve, serveTLS = s.Serve, s.ServeTLS
			settled = func() int { n := s.Stats(); return min(n.Suspended, n.Parked) }
		}
		then := func(w http.ResponseWriter, _ *http.Request, _ *Suspended) { io.WriteString(w, "x") }
		srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/waiting":
				io.WriteString(w, strconv.Itoa(settled()))
			case r.URL.Path == "/resume":
				mu.Lock()
				defer mu.Unlock()
				for _, resume := range all {
					resume()
				}
				all = nil
			case !ours:
				c := make(chan struct{})
				wait(func() { close(c) })
				<-c
				then(w, r, nil)
			default:
				if err := Suspend(w, r, func(q *Suspended) { wait(func() { q.Resume() }) }, then); err != nil {
					log.Fatal(err)
				}
			}
		})
		if secure {
			go serveTLS(ln, "", "")
		} else {
			go serve(ln)
		}
		return settled
	}
}

// runRole is the main function of a child process that has a role. It reports whether this process has one.
func runRole() bool {
	return idling.Roles{
		"server":    func(args []string) { runServer(args[0]) },
		"clients":   func(args []string) { runClients(args[0], args[1], args[2] == "true") },
		"load":      func(args []string) { runLoad(args[0], args[1]) },
		"rare load": func(args []string) { runRareLoad(args[0], args[1] == "true") },
		"pollers":   func(args []string) { runPollers(args[0], args[1] == "true") },
	}.Play()
}

func runServer(name string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	for _, k := range idleKinds {
		if k.name == name {
			idling.Serve(ln, k.serve(ln, conntest.MakeCertificate()))
		}
	}
}

// runClients makes the connections and sends a request on each.
func runClients(address, name string, secure bool) {
	text, answer := "x", 1
	waits := strings.HasPrefix(name, "waiting")
	if waits {
		text = waitingRequest
	} else if strings.Contains(name, "HTTP") || strings.Contains(name, "http") {
		text, answer = hello, 0
	}
	idling.Connect(func() (net.Conn, error) {
		conn, err := idling.Dial(address, secure)
		if err != nil || strings.HasPrefix(name, "silent") {
			return conn, err
		}
		if _, err := io.WriteString(conn, text); err != nil {
			return nil, err
		}
		if waits {
			return conn, nil
		}
		if answer > 0 {
			_, err = io.ReadFull(conn, make([]byte, answer))
		} else {
			var r *http.Response
			if r, err = http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				_, err = io.Copy(io.Discard, r.Body)
			}
		}
		return conn, err
	})
}
