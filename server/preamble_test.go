package server_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

// fromLine is a Preamble of a line with the word FROM and the peer's address.
func fromLine(remote, local net.Addr, b []byte) (p server.Preamble, err error) {
	const word = "FROM "
	if n := min(len(b), len(word)); string(b[:n]) != word[:n] {
		return p, errors.New("no FROM")
	}
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return p, sock.ErrWouldBlock
	}
	a, err := net.ResolveTCPAddr("tcp", string(b[len(word):i]))
	return server.Preamble{N: i + 1, Remote: a, Value: string(b[:i])}, err
}

// withPreamble runs a test without and with TLS. connect sends a header in pieces of a size, and a text after it, in the
// last piece without TLS.
func withPreamble(t *testing.T, f func(t *testing.T, backend string, connect func(s *srv, header string, piece int, text string) net.Conn)) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, with := range []string{"plain", "tls"} {
			t.Run(with, func(t *testing.T) {
				f(t, backend, func(s *srv, header string, piece int, text string) net.Conn {
					if s.Preamble == nil {
						s.Preamble = fromLine
					}
					if with == "plain" {
						c := dial(t, start(t, s))
						sendPieces(t, c, header+text, piece)
						return extended{c}
					}
					addr, config := startTLS(t, s)
					c := dial(t, addr)
					sendPieces(t, c, header, piece)
					tc := tls.Client(c, config)
					if text != "" {
						tc.Write([]byte(text))
					}
					return extended{tc}
				})
			})
		}
	})
}

// The handler sees the address of the header, and the bytes after it, however they arrive.
func TestPreamble(t *testing.T) {
	for _, from := range []string{"192.0.2.1:33", "[2001:db8::1]:1"} {
		for _, piece := range []int{1, 7, 1000} {
			withPreamble(t, func(t *testing.T, backend string, connect func(*srv, string, int, string) net.Conn) {
				h := &handler{t: t, open: func(c conn) error {
					if a := c.RemoteAddr(); a == nil || a.String() != from {
						t.Errorf("remote address %v, want %s", a, from)
					}
					if p := c.Preamble(); p.Value != "FROM "+from {
						t.Errorf("Preamble = %+v", p)
					}
					return nil
				}}
				s := &srv{Handler: h, Backend: backend}
				c := connect(s, "FROM "+from+"\n", piece, "text")
				expect(t, c, "text")
				echoes(t, c, "more")
				if h.conn(1).LocalAddr().String() != c.RemoteAddr().String() {
					t.Error("another local address")
				}
				if st := s.Stats(); st.RejectedHeaders != 0 || st.Rejected != 0 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// With Preamble, a connection without a header is served at once if the function says so, though the peer sends nothing.
func TestPreambleNone(t *testing.T) {
	h := &handler{t: t, open: func(c conn) error { _, err := c.Write([]byte("hello")); return err }}
	s := &srv{Handler: h, Preamble: func(remote, local net.Addr, b []byte) (server.Preamble, error) {
		if remote.String() == "" || local.String() == "" || len(b) > 0 {
			t.Errorf("called for %v, %v and %d bytes", remote, local, len(b))
		}
		return server.Preamble{}, nil
	}}
	c := dial(t, start(t, s))
	expect(t, c, "hello")
	if p := h.conn(1).Preamble(); p != (server.Preamble{}) {
		t.Errorf("Preamble = %+v", p)
	}
	if h.conn(1).RemoteAddr().String() != c.LocalAddr().String() {
		t.Error("another remote address")
	}
}

// A connection with a bad header, with half a header, or with too much of one is closed and counted, without Open.
func TestPreambleBad(t *testing.T) {
	t.Parallel() // it waits
	for name, bad := range map[string]struct {
		send   string
		end    bool
		header func(remote, local net.Addr, b []byte) (server.Preamble, error)
	}{
		"wrong":   {send: "GET / HTTP/1.0\n"},
		"address": {send: "FROM nowhere\n"},
		"half":    {send: "FROM 192.0.2.1"},
		"none":    {},
		"cut":     {send: "FROM", end: true},
		"long":    {send: "FROM " + strings.Repeat("1", 128<<10)},
		"panic":   {send: "x", header: func(_, _ net.Addr, b []byte) (server.Preamble, error) { panic("header") }},
		"length": {send: "x", header: func(_, _ net.Addr, b []byte) (server.Preamble, error) {
			return server.Preamble{N: len(b) + 1}, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			withPreamble(t, func(t *testing.T, backend string, connect func(*srv, string, int, string) net.Conn) {
				s := &srv{Handler: &handler{t: t}, Backend: backend, Preamble: bad.header, HandshakeTimeout: 100 * time.Millisecond}
				c := connect(s, "", 1, "")
				if tc, ok := c.(extended).Conn.(*tls.Conn); ok {
					c = extended{tc.NetConn()}
				}
				c.Write([]byte(bad.send)) // it may be cut off
				if bad.end {
					c.(extended).CloseWrite()
				}
				if _, err := io.ReadAll(c); err != nil && !isLost(err) {
					t.Error(err)
				}
				wait(t, func() bool { st := s.Stats(); return st.RejectedHeaders+st.TimedOut.Handshake == 1 })
				if h := s.Handler.(*handler); h.opens > 0 || h.closes > 0 {
					t.Errorf("%d opens, %d closes", h.opens, h.closes)
				}
			})
		})
	}
}

// The limits per address apply to the address of the header.
func TestPreambleLimits(t *testing.T) {
	for name, s := range map[string]*srv{
		"conns": {MaxConnsPerAddr: 2},
		"rate":  {AcceptRatePerAddr: server.Rate{PerSecond: 1, Burst: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			s.Handler, s.Preamble = &handler{t: t}, fromLine
			addr := start(t, s)
			for range 2 {
				for _, from := range []string{"192.0.2.1:33", "192.0.2.2:33"} {
					c := dial(t, addr)
					send(t, c, "FROM "+from+"\necho")
					expect(t, c, "echo")
				}
			}
			before := s.Stats().Refused
			for s.Stats().Refused == before { // with a rate another one may be accepted
				c := dial(t, addr)
				send(t, c, "FROM 192.0.2.1:44\necho")
				io.ReadAtLeast(c, make([]byte, 4), 4)
			}
			if st := s.Stats(); st.RejectedHeaders != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// Shutdown serves the first request of a connection whose header has arrived, and ends connections with half a header.
func TestPreambleShutdown(t *testing.T) {
	t.Parallel() // it waits
	s := &srv{Handler: &handler{t: t}, Preamble: fromLine}
	server.Grace(s, time.Second)
	addr := start(t, s)
	whole, half := dial(t, addr), dial(t, addr)
	send(t, whole, "FROM 192.0.2.1:33\n")
	send(t, half, "FROM 192.")
	s.Handler.(*handler).conn(1)
	wait(t, func() bool { return s.Stats().Accepted == 2 })
	done := shuttingDown(t, s)
	echoes(t, whole, "request")
	expectEnd(t, whole, io.EOF)
	done()
	if st := s.Stats(); st.RejectedHeaders != 1 {
		t.Errorf("%+v", st)
	}
}

// More bytes than a TLS record may come together with the header.
func TestPreambleTLSMuch(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		s := &srv{Handler: &handler{t: t}, Backend: backend, Preamble: fromLine}
		addr, config := startTLS(t, s)
		c := dial(t, addr)
		send(t, c, "FROM 192.0.2.1:33\n"+strings.Repeat("x", 60_000))
		io.Copy(io.Discard, c)
		wait(t, func() bool { st := s.Stats(); return st.Conns == 0 && st.Handshaking == 0 && st.Rejected == 1 })
		bad := dial(t, addr)
		send(t, bad, "bad header\n")
		io.Copy(io.Discard, bad)
		wait(t, func() bool { st := s.Stats(); return st.Conns == 0 && st.Handshaking == 0 && st.RejectedHeaders == 1 })
		good := dial(t, addr)
		send(t, good, "FROM 192.0.2.1:33\n")
		tc := tls.Client(good, config)
		echoes(t, tc, "hello")
	})
}
