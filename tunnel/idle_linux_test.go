package tunnel

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
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/test/idling"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/race"
)

// proxyKinds are the proxies that are measured.
var proxyKinds = map[string]struct{ secure, ours, parked bool }{
	"proxy":                     {},
	"park proxy":                {ours: true},
	"park proxy, park HTTP":     {ours: true, parked: true},
	"proxy TLS":                 {secure: true},
	"park proxy TLS, park HTTP": {true, true, true},
}

// BenchmarkIdle measures the memory of a proxy for each pair of idle connections, after a message each way.
func BenchmarkIdle(b *testing.B) {
	for name, kind := range proxyKinds {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				measureIdle(b, name, kind.secure).Report(b)
			}
		})
	}
}

func measureIdle(t testing.TB, kind string, secure bool) idling.Usage {
	t.Helper()
	return idling.Measure(t, kind, strconv.FormatBool(secure))
}

// runRole is the main function of a child process that has a role. It reports whether this process has one.
func runRole() bool {
	return idling.Roles{
		"server": func(args []string) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				log.Fatal(err)
			}
			k := proxyKinds[args[0]]
			idling.Serve(ln, serveProxy(k.secure, k.ours, k.parked)(ln, conntest.MakeCertificate()))
		},
		"clients": func(args []string) { runProxyClients(args[0], args[1] == "true") },
		"joining": func(args []string) { runJoining(args[0], args[1] == "true", args[2]) },
		"ends": func(args []string) {
			n, _ := strconv.Atoi(args[0])
			runEnds(n, args[1] == "true")
		},
	}.Play()
}

// A pair of idle connections through a proxy, after one message each way, needs at most 1,700 live
// bytes, and less than a twentieth of httputil.ReverseProxy's own copying.
func TestProxyIdleMemory(t *testing.T) {
	long.Only(t, "it makes 10,000 connections, several times")
	if race.Enabled {
		t.Skip("the memory of the race detector would be included")
	}
	var limit unix.Rlimit
	check.OK(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
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
			h := &park.HTTPServer{Server: srv}
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
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	g, _ := newTunnels(t, &Tunnels{IdleTimeout: conntest.Timeout})
	a, near := conntest.Pair(t, "tcp")
	b, far := conntest.Pair(t, "tcp")
	check.OK(t, g.Join(a, b))
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
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		exchange(times)
		runtime.ReadMemStats(&after)
		least = min(least, after.Mallocs-before.Mallocs)
	}
	// On a busy machine workers start and the pools are emptied now and then. One allocation for each
	// message would be 2,000.
	if least > times {
		t.Errorf("%d allocations for %d messages and their answers", least, times)
	}
}
