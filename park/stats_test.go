package park

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
)

// A lot that measures its functions has one duration for each that has returned, and its workers are labelled.
func TestStatsCallTime(t *testing.T) {
	lot, err := New(Config{TimeCalls: true, Name: "cars"})
	check.OK(t, err)
	defer lot.Shutdown(context.Background())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	check.OK(t, err)
	defer client.Close()
	conn, err := ln.Accept()
	check.OK(t, err)
	var profile strings.Builder
	done := make(chan struct{})
	check.OK(t, lot.Park(conn, func(c net.Conn) {
		pprof.Lookup("goroutine").WriteTo(&profile, 1)
		c.Close()
		close(done)
	}))
	if h := lot.Stats().CallTime; h.Count() != 0 {
		t.Errorf("%+v before the call", h)
	}
	conntest.Send(t, client, "x")
	await.Value(t, done)
	await.Until(t, "the call is measured", func() bool { h := lot.Stats().CallTime; return h.Count() == 1 && h.Sum > 0 })
	if want := `# labels: {"socknotify_server":"cars"}`; !strings.Contains(profile.String(), want) {
		t.Errorf("no %s in\n%s", want, profile.String())
	}
}

func TestServerStats(t *testing.T) {
	cert := conntest.Certificate(t)
	s := newLineServer(t, func(s *Server) { s.TimeCalls, s.MaxConns, s.MaxConnsPerAddr = true, 4, 3 }, func(s *Server, l net.Listener) error {
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
		return s.ServeTLS(l, "", "")
	})
	s.secure = true
	await.Until(t, "the server is ready", s.Ready)
	conn := s.dial()
	s.ask(conn, "one")
	s.ask(conn, "two")
	await.Until(t, "calls are counted", func() bool {
		st := s.Stats()
		return st.Calls == 2 && st.CallTime.Count() == 2 && st.Handshakes == 1 && st.Conns == 1
	})
	broken := s.dial()
	conntest.Send(t, broken.(interface{ NetConn() net.Conn }).NetConn(), "not TLS at all")
	await.Until(t, "the handshake has failed", func() bool { return s.Stats().Rejected == 1 })
	await.Until(t, "it is gone", func() bool { return s.Stats().Conns == 1 })
	conntest.Send(t, conn, "panic\n")
	await.Until(t, "the panic is counted", func() bool { return s.Stats().Panics == 1 })
	await.Until(t, "the connection is gone", func() bool { return s.Stats().Conns == 0 })
	for range 3 {
		s.ask(s.dial(), "held open")
	}
	s.ended(s.dial().(interface{ NetConn() net.Conn }).NetConn())
	if st := s.Stats(); st.Refused != 1 || st.RefusedPerAddr != 1 {
		t.Errorf("%+v", st)
	}
	s.Close()
	if s.Ready() {
		t.Error("ready after Close")
	}
}

// Shutdown makes a server unready while it still waits for a call.
func TestServerReady(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s := newLineServer(t, func(s *Server) {
		s.Handler = func(net.Conn) error {
			close(entered)
			<-leave
			return conntest.ErrOwn
		}
	}, nil)
	await.Until(t, "the server is ready", s.Ready)
	conntest.Send(t, s.dial(), "x")
	await.Value(t, entered)
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(context.Background()) }()
	await.Until(t, "it is not ready", func() bool { return !s.Ready() })
	select {
	case err := <-down:
		t.Errorf("Shutdown has returned before the call: %v", err)
	default:
	}
	close(leave)
	check.OK(t, await.Value(t, down))
}

// The counts of an HTTPServer stay when a Serve returns.
func TestHTTPStats(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s := newTestServer(t, func(s *HTTPServer) {
		s.TimeCalls = true
		s.Server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hold" {
				once.Do(func() { close(entered) })
				<-leave
			}
			io.WriteString(w, "ok")
		})
	}, nil)
	await.Until(t, "the server is ready", s.Ready)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(path string) error {
		r, err := client.Get("http://" + s.address + path)
		if err != nil {
			return err
		}
		defer r.Body.Close()
		_, err = io.ReadAll(r.Body)
		return err
	}
	check.OK(t, get("/"))
	check.OK(t, get("/"))
	await.Until(t, "requests are counted", func() bool {
		st := s.HTTPServer.Stats()
		return st.Calls == 2 && st.CallTime.Count() == 2 && st.Parked == 1 && st.Parks >= 1 && len(s.Lots()) == 1
	})
	check.OK(t, get("/"))
	for i, bad := range []string{"GET / HTTP/1.1\r\n\r\n", "nonsense\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 2<<20) + "\r\n\r\n"} {
		conn, err := net.Dial("tcp", s.address)
		check.OK(t, err)
		go io.WriteString(conn, bad) // the answer may come before all is sent
		if b, _ := io.ReadAll(conn); !strings.Contains(string(b), "HTTP/1.1 4") {
			t.Errorf("%.40q is answered by %q", bad, b)
		}
		conn.Close()
		if n := s.HTTPServer.Stats().Rejected; n != uint64(i+1) {
			t.Errorf("after %.40q: %d requests were rejected, want %d", bad, n, i+1)
		}
	}
	held := make(chan error, 1)
	go func() { held <- get("/hold") }()
	await.Value(t, entered)
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(context.Background()) }()
	await.Until(t, "it is not ready", func() bool { return !s.Ready() })
	close(leave)
	check.OK(t, await.Value(t, held))
	check.OK(t, await.Value(t, down))
	await.Until(t, "Serve has returned", func() bool { return len(s.Lots()) == 0 })
	if st := s.HTTPServer.Stats(); st.Calls != 5 || st.Rejected != 3 || st.Parks == 0 || st.Parked != 0 || st.CallTime.Count() != 5 {
		t.Errorf("at the end: %+v", st)
	}
}

// An HTTPServer counts each connection from when it was accepted until it is closed or hijacked,
// whatever it does in between.
func TestHTTPConns(t *testing.T) {
	for _, secure := range []bool{false, true} {
		var p *poll
		kind := map[bool]string{false: "plain", true: "TLS"}[secure]
		p = newPoll(t, kind, nil, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/hijack":
					conn, _, err := http.NewResponseController(w).Hijack()
					check.OK(t, err)
					conn.Close()
				case "/panic":
					panic(http.ErrAbortHandler)
				default:
					h.ServeHTTP(w, r)
				}
			})
		})
		accepted := uint64(0)
		dial := func() (net.Conn, *bufio.Reader) {
			accepted++
			return p.dial()
		}
		want := func(what string, conns int) {
			t.Helper()
			await.Until(t, what, func() bool { st := p.Stats(); return st.Conns == conns && st.Accepted == accepted })
		}
		silent, _ := dial()
		want("one that has sent nothing", 1)
		idle, idleIn := dial()
		for range 3 {
			conntest.Send(t, idle, hello)
			answered(t, idleIn, "GET")
			await.Until(t, "both are parked", func() bool { return p.Stats().Parked == 2 })
		}
		want("an idle one", 2)
		waiting, waitingIn := dial()
		q := p.poll(waiting, pollText)
		want("one that waits", 3)
		q.Resume()
		p.wantAnswer(waitingIn)
		want("it was answered", 3)
		for _, path := range []string{"/hijack", "/panic"} {
			conn, in := dial()
			conntest.Send(t, conn, request("GET", path))
			io.Copy(io.Discard, in)
			want(path, 3)
		}
		conn, in := dial()
		conntest.Send(t, conn, "nonsense\r\n\r\n")
		io.Copy(io.Discard, in)
		conn.Close()
		want("one that was refused", 3)
		if secure {
			accepted++
			raw, err := net.Dial("tcp", p.address)
			check.OK(t, err)
			conntest.Send(t, raw, "no handshake at all")
			io.Copy(io.Discard, raw)
			raw.Close()
			want("one without a handshake", 3)
		}
		idle.Close()
		want("the idle one is gone", 2)
		p.SetKeepAlivesEnabled(false)
		want("the other one is closed", 1)
		silent.Close()
		want("the silent one is gone", 0)
	}
}
