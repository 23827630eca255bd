package park

import (
	"bufio"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/serving/nowait"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"
)

// silentServer serves with TLS or without. It skips the test where a socket of package net cannot be asked for bytes.
func silentServer(t *testing.T, secure bool, set func(*HTTPServer)) (s *testServer, dial func() net.Conn) {
	t.Helper()
	if a, _ := conntest.Pair(t, "tcp"); !asks(a) {
		t.Skip("there is no way to ask a socket of package net")
	}
	s = newTestServer(t, func(s *HTTPServer) {
		withTLS(t)(s)
		if set != nil {
			set(s)
		}
	}, func(s *HTTPServer, ln net.Listener) error {
		if secure {
			return serveTLS(s, ln)
		}
		return s.Serve(ln)
	})
	return s, func() net.Conn {
		conn, err := net.Dial("tcp", s.address)
		check.OK(t, err)
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(2 * conntest.Timeout))
		if secure {
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		}
		return conn
	}
}

func asks(conn net.Conn) bool {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	return err == nil && nowait.Of(raw).OK()
}

// A connection that has sent nothing is parked, has no goroutine, and is served when it sends a request.
func TestHTTPSilent(t *testing.T) {
	const conns = 100
	for _, secure := range []bool{false, true} {
		s, dial := silentServer(t, secure, nil)
		before := runtime.NumGoroutine()
		var all []net.Conn
		for range conns {
			all = append(all, dial())
		}
		await.Until(t, "all are parked", func() bool { st := s.Stats(); return st.Parked == conns && st.Conns == conns })
		await.Until(t, "none has a goroutine", func() bool { return runtime.NumGoroutine() <= before+10 })
		for _, conn := range all {
			s.ask(conn, bufio.NewReader(conn))
		}
		if st := s.Stats(); st.Calls != conns || st.Conns != conns {
			t.Errorf("%+v", st)
		}
	}
}

// A client that sends nothing in the time for the head of its first request is disconnected without an answer, as by
// net/http, which also logs a handshake.
func TestHTTPSilentTooLong(t *testing.T) {
	for _, secure := range []bool{false, true} {
		var logged conntest.Log
		s, dial := silentServer(t, secure, func(s *HTTPServer) {
			s.Server.ReadHeaderTimeout = 50 * time.Millisecond
			s.Server.ErrorLog = log.New(&logged, "", 0)
		})
		conn := dial()
		if c, ok := conn.(*tls.Conn); ok {
			conn = c.NetConn()
		}
		if b, err := io.ReadAll(conn); err != nil || len(b) > 0 {
			t.Errorf("%q, %v", b, err)
		}
		await.Until(t, "it is closed", func() bool { return s.closedCount(1) == 1 })
		if got := logged.String(); strings.Contains(got, "i/o timeout") != secure {
			t.Errorf("secure %t, logged %q", secure, got)
		}
		if st := s.Stats(); st.Conns != 0 || st.Parked != 0 {
			t.Errorf("%+v", st)
		}
	}
}

// A connection that was parked before its first request and is hijacked can be parked by another lot.
func TestHTTPSilentHijacked(t *testing.T) {
	l := newLot(t, Config{})
	f, outcomes := conntest.Reader()
	s, dial := silentServer(t, false, func(s *HTTPServer) {
		s.Server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			check.OK(t, err)
			check.OK(t, l.Park(conn, f))
		})
	})
	conn := dial()
	await.Until(t, "it is parked", func() bool { return s.Stats().Parked == 1 })
	conntest.Send(t, conn, hello)
	await.Until(t, "the other lot has it", func() bool { return l.Stats().Parked == 1 })
	conntest.Send(t, conn, "x")
	if o := await.Value(t, outcomes); o.Text != "x" || o.Err != nil {
		t.Errorf("%+v", o)
	}
}
