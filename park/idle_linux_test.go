package park

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What an idle connection costs the process of its server: each has had one request, and waits for the next.
// Servers and clients are processes of their own, so that each server begins afresh. heap is after two
// collections, and stack what the runtime has in use for stacks; live is both. RSS is after the runtime has
// given back what it does not use. Each is the difference that the connections make. What the kernel keeps
// for a socket is in none.
func BenchmarkIdle(b *testing.B) {
	for _, kind := range idleKinds {
		b.Run(kind.name, func(b *testing.B) {
			for b.Loop() {
				m := measureIdle(b, kind.name, kind.secure)
				per := func(bytes int64) float64 { return float64(bytes) / idleConns }
				b.ReportMetric(per(m.heap+m.stack), "live-B/conn")
				b.ReportMetric(per(m.heap), "heap-B/conn")
				b.ReportMetric(per(m.stack), "stack-B/conn")
				b.ReportMetric(per(m.rss), "RSS-B/conn")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// Held by a test as well: parked connections stay below 1,200 live bytes, and net/http's below a fifth.
func TestIdleMemory(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector's own memory would count")
	}
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	if limit.Cur < idleConns+100 {
		t.Skipf("%d connections, and %d descriptors at most", idleConns, limit.Cur)
	}
	live := func(kind string) float64 {
		m := measureIdle(t, kind, false)
		return float64(m.heap+m.stack) / idleConns
	}
	if n := live("park"); n > 1200 {
		t.Errorf("parked: %.0f bytes", n)
	}
	stock, ours := live("net/http"), live("park HTTP")
	if ours > stock/5 {
		t.Errorf("HTTP: %.0f bytes parked, %.0f in stock", ours, stock)
	}
}

const idleConns = 5000

var idleKinds = []struct {
	name   string
	secure bool
	serve  func(net.Listener, tls.Certificate) (settled func() int)
}{
	{"goroutine", false, serveBlocking(func(c net.Conn) (io.Reader, io.Writer, net.Conn) { return c, c, c })},
	{"goroutine with bufio", false, serveBlocking(func(c net.Conn) (io.Reader, io.Writer, net.Conn) {
		return bufio.NewReader(c), bufio.NewWriter(c), c
	})},
	{"park", false, serveParked(false)},
	{"goroutine TLS", true, serveBlocking(nil)},
	{"park TLS", true, serveParked(true)},
	{"net/http", false, serveStock(false)},
	{"park HTTP", false, serveSite(false, 0)},
	{"park HTTP at once", false, serveSite(false, -1)},
	{"net/http TLS", true, serveStock(true)},
	{"park HTTP TLS", true, serveSite(true, 0)},
}

// serveBlocking has a goroutine and a buffer for each connection.
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

func serveParked(secure bool) func(net.Listener, tls.Certificate) func() int {
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
				if secure {
					conn = tls.Server(conn, config)
				}
				l.Park(conn, serve)
			}
		}()
		return func() int { return min(int(answered.Load()), l.Stats().Parked) }
	}
}

func idleServer(secure bool, cert tls.Certificate, idle *atomic.Int64) *http.Server {
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "x") })}
	if idle != nil {
		srv.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateIdle {
				idle.Add(1)
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
		var idle atomic.Int64
		srv := idleServer(secure, cert, &idle)
		if secure {
			go srv.ServeTLS(ln, "", "")
		} else {
			go srv.Serve(ln)
		}
		return func() int { return int(idle.Load()) }
	}
}

func serveSite(secure bool, linger time.Duration) func(net.Listener, tls.Certificate) func() int {
	return func(ln net.Listener, cert tls.Certificate) func() int {
		s := &HTTPServer{Linger: linger, Server: idleServer(secure, cert, nil)}
		if secure {
			go s.ServeTLS(ln, "", "")
		} else {
			go s.Serve(ln)
		}
		return s.Parked
	}
}

// usage is what a server uses, in bytes.
type usage struct{ heap, stack, rss int64 }

// measureIdle starts a server and clients, and returns what their connections cost.
func measureIdle(t testing.TB, kind string, secure bool) usage {
	t.Helper()
	server := startRole(t, "server", kind)
	address := server.say("")
	before := server.usage("before")
	clients := startRole(t, "clients", kind, address, strconv.FormatBool(secure))
	if got := clients.say(""); got != "ready" {
		t.Fatalf("clients: %q", got)
	}
	after := server.usage("after")
	return usage{after.heap - before.heap, after.stack - before.stack, after.rss - before.rss}
}

// A role is a process of this program's that plays it.
type role struct {
	t   testing.TB
	in  io.Writer
	out *bufio.Reader
}

func startRole(t testing.TB, name string, args ...string) *role {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "PARK_IDLE_ROLE="+strings.Join(append([]string{name}, args...), "|"))
	var failed bytes.Buffer
	c.Stderr = &failed
	in, err := c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() {
		in.Close() // which ends it
		c.Wait()
		if failed.Len() > 0 {
			t.Errorf("%s: %s", name, failed.String())
		}
	})
	return &role{t, in, bufio.NewReader(out)}
}

// say says something, or nothing, and returns the answer.
func (r *role) say(text string) string {
	r.t.Helper()
	if text != "" {
		fmt.Fprintln(r.in, text)
	}
	line, err := r.out.ReadString('\n')
	must(r.t, err)
	return strings.TrimSpace(line)
}

func (r *role) usage(when string) (u usage) {
	r.t.Helper()
	_, err := fmt.Sscan(r.say(when), &u.heap, &u.stack, &u.rss)
	must(r.t, err)
	return u
}

// playRole is the process's main, if it has a role.
func playRole() bool {
	parts := strings.Split(os.Getenv("PARK_IDLE_ROLE"), "|")
	switch parts[0] {
	case "server":
		playServer(parts[1])
	case "clients":
		playClients(parts[1], parts[2], parts[3] == "true")
	case "load":
		playLoad(parts[1], parts[2])
	default:
		return false
	}
	return true
}

func playServer(name string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	for _, k := range idleKinds {
		if k.name != name {
			continue
		}
		settled := k.serve(ln, makeCertificate())
		fmt.Println(ln.Addr())
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			if in.Text() == "cpu" {
				fmt.Println(cpu())
				continue
			}
			if in.Text() == "after" {
				for settled() < idleConns {
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(200 * time.Millisecond) // for the last of them to wait
			}
			runtime.GC()
			debug.FreeOSMemory() // which collects as well
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			fmt.Println(m.HeapAlloc, m.StackInuse, residentSize())
		}
	}
}

func residentSize() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		log.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// playClients makes the connections, and a request on each.
func playClients(name, address string, secure bool) {
	text, answer := "x", 1
	if strings.Contains(name, "HTTP") || strings.Contains(name, "http") {
		text, answer = hello, 0
	}
	var conns [idleConns]net.Conn
	for i := range conns {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			log.Fatal(err)
		}
		if secure {
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		}
		conns[i] = conn
		if _, err := io.WriteString(conn, text); err != nil {
			log.Fatal(err)
		}
		if answer > 0 {
			_, err = io.ReadFull(conn, make([]byte, answer))
		} else {
			var r *http.Response
			if r, err = http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				_, err = io.Copy(io.Discard, r.Body)
			}
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(&conns)
}
