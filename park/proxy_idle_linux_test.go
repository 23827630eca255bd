package park

import (
	"bufio"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/test/idling"
	"github.com/socknotify/socknotify/internal/test/long"
)

func init() {
	add := func(name string, secure, ours, parked bool) {
		idleKinds = append(idleKinds, idleKind{name, secure, serveProxy(secure, ours, parked)})
	}
	add("proxy", false, false, false)
	add("park proxy", false, true, false)
	add("park proxy, park HTTP", false, true, true)
	add("proxy TLS", true, false, false)
	add("park proxy TLS, park HTTP", true, true, true)
}

// A pair of idle connections through a proxy, after one message each way, needs at most 1,700 live
// bytes, and less than a twentieth of httputil.ReverseProxy's own copying.
func TestProxyIdleMemory(t *testing.T) {
	long.Only(t, "it makes 10,000 connections, several times")
	if raceDetector {
		t.Skip("the memory of the race detector would be included")
	}
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	if limit.Cur < uint64(2*idling.Conns)+100 {
		t.Skipf("%d pairs need more than the %d descriptors that are allowed", idling.Conns, limit.Cur)
	}
	for _, c := range []struct {
		stock, ours string
		secure      bool
		most        float64
	}{
		{"proxy", "park proxy", false, 1700},
		{"proxy", "park proxy, park HTTP", false, 1700},
		{"proxy TLS", "park proxy TLS, park HTTP", true, 2200},
	} {
		stock, ours := measureIdle(t, c.stock, c.secure).Live(), measureIdle(t, c.ours, c.secure).Live()
		t.Logf("%s: %.0f bytes for each pair, %s: %.0f", c.stock, stock, c.ours, ours)
		if ours > c.most || ours > stock/20 {
			t.Errorf("%s: %.0f bytes, want at most %.0f; %s: %.0f", c.ours, ours, c.most, c.stock, stock)
		}
	}
}

// serveProxy serves a proxy whose backend is the one that a request names.
func serveProxy(secure, ours, parked bool) func(net.Listener, tls.Certificate) func() int {
	return func(ln net.Listener, cert tls.Certificate) func() int {
		var upgraded atomic.Int64
		var g Tunnels
		proxy := &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(&url.URL{Scheme: "http", Host: r.In.Header.Get("X-Backend")})
			},
			ModifyResponse: func(*http.Response) error {
				upgraded.Add(1)
				return nil
			},
		}
		srv := &http.Server{Handler: proxy, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}
		if ours {
			srv.Handler = g.ReverseProxy(proxy)
		}
		serve, serveTLS := srv.Serve, srv.ServeTLS
		if parked {
			h := &HTTPServer{Server: srv}
			serve, serveTLS = h.Serve, h.ServeTLS
		}
		if secure {
			go serveTLS(ln, "", "")
		} else {
			go serve(ln)
		}
		return func() int {
			if !ours {
				return int(upgraded.Load())
			}
			st := g.Stats()
			if st.Running > 0 {
				return 0
			}
			return min(int(st.BytesForth), int(st.BytesBack), st.Parked/2)
		}
	}
}

// runProxyClients is runClients for a proxy. It has the backend too.
func runProxyClients(address string, secure bool) {
	backend, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go answerUpgrades(backend)
	idling.Connect(func() (net.Conn, error) {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return nil, err
		}
		if secure {
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		}
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: test\r\nX-Backend: "+backend.Addr().String()+
			"\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
		if err != nil {
			return nil, err
		}
		in := bufio.NewReader(conn)
		if _, err := http.ReadResponse(in, nil); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(conn, "x"); err != nil {
			return nil, err
		}
		_, err = in.ReadByte()
		return conn, err
	})
}

// answerUpgrades upgrades each connection, answers its first byte, and keeps it open.
func answerUpgrades(l net.Listener) {
	open := make(map[net.Conn]bool) // otherwise the collector would close them
	for {
		conn, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		in := bufio.NewReader(conn)
		if _, err = http.ReadRequest(in); err == nil {
			_, err = io.WriteString(conn, switching)
		}
		if err == nil {
			_, err = in.ReadByte()
		}
		if err == nil {
			_, err = io.WriteString(conn, "y")
		}
		if err != nil {
			log.Fatal(err)
		}
		open[conn] = true
	}
}

// A message through a parked tunnel, and its answer, allocate nothing.
func TestTunnelAllocs(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	g, _ := newTunnels(t, &Tunnels{IdleTimeout: timeout})
	a, near := pair(t, "tcp")
	b, far := pair(t, "tcp")
	must(t, g.Join(a, b))
	buf := make([]byte, 1)
	exchange := func(times int) {
		for range times {
			near.Write(buf)
			io.ReadFull(far, buf)
			far.Write(buf)
			io.ReadFull(near, buf)
		}
	}
	exchange(100)
	const times = 1000
	least := uint64(1 << 40)
	for range 5 { // a worker may start, and the pools may be emptied
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		exchange(times)
		runtime.ReadMemStats(&after)
		least = min(least, after.Mallocs-before.Mallocs)
	}
	if least > times/10 {
		t.Errorf("%d allocations for %d messages and their answers", least, times)
	}
}
