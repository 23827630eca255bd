package server_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/server"
)

// queued is a connection whose handler, for each "h" that it receives, queues bytes and hijacks the connection.
type queued struct {
	h      *handler
	s      *srv
	peer   net.Conn
	below  *net.TCPConn  // the peer's, without TLS
	conns  chan net.Conn // of Hijack
	totals chan int      // of what was written before
}

// hijackQueued runs a test without TLS and with each version.
func hijackQueued(t *testing.T, f func(t *testing.T, q *queued)) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, version := range []uint16{0, tls.VersionTLS12, tls.VersionTLS13} {
			name := "plain"
			if version != 0 {
				name = tls.VersionName(version)
			}
			t.Run(name, func(t *testing.T) {
				q := &queued{h: &handler{t: t}, conns: make(chan net.Conn, 1), totals: make(chan int, 1)}
				q.h.data = func(c conn, buf []byte) error {
					n, err := c.Read(buf[:1])
					if err != nil {
						return err
					}
					if buf[0] != 'h' {
						_, err = c.Write(buf[:n])
						return err
					}
					total, err := fillStream(c, 1<<16)
					if err != nil {
						return err
					}
					nc, err := c.Hijack()
					if err != nil {
						return err
					}
					q.totals <- total
					q.conns <- nc
					return nil
				}
				q.s = &srv{Handler: q.h, Backend: backend, TLSConfig: &tls.Config{MaxVersion: version}}
				if version == 0 {
					q.below = dial(t, start(t, q.s))
					q.peer = q.below
				} else {
					addr, config := startTLS(t, q.s)
					q.below = dial(t, addr)
					q.peer = tls.Client(q.below, config)
				}
				f(t, q)
			})
		}
	})
}

func (q *queued) hijack(t *testing.T) (nc net.Conn, total int) {
	t.Helper()
	send(t, q.peer, "h")
	return <-q.conns, <-q.totals
}

// hasTLS reports whether a hijacked connection has TLS.
func hasTLS(nc net.Conn) bool {
	_, with := nc.(interface{ ConnectionState() tls.ConnectionState })
	return with
}

// The bytes that were queued before Hijack reach the peer first, and none is lost, whatever the hijacker does.
func TestHijackQueued(t *testing.T) {
	for name, then := range map[string]func(t *testing.T, q *queued, nc net.Conn){
		"write": func(t *testing.T, q *queued, nc net.Conn) {
			go func() {
				if _, err := nc.Write([]byte("after")); err != nil {
					t.Error(err)
				}
				nc.Close()
			}()
		},
		"read": func(t *testing.T, q *queued, nc net.Conn) {
			go func() {
				var b [2]byte
				if _, err := io.ReadFull(nc, b[:]); err != nil || string(b[:]) != "go" {
					t.Errorf("%q, %v", b, err)
				}
				nc.Write([]byte("after"))
				if err := q.h.conns[0].Resume(); err != nil {
					t.Error(err)
				}
			}()
			send(t, q.peer, "go")
		},
		"close": func(t *testing.T, q *queued, nc net.Conn) {
			if hasTLS(nc) {
				go nc.Close() // it has a close_notify to write
			} else if err := nc.Close(); err != nil {
				t.Error(err)
			}
		},
		"resume": func(t *testing.T, q *queued, nc net.Conn) {
			if err := q.h.conns[0].Resume(); err != nil {
				t.Error(err)
			}
			send(t, q.peer, "after")
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "resume" {
				noHijack(t)
			}
			hijackQueued(t, func(t *testing.T, q *queued) {
				rounds := 1
				if name == "read" || name == "resume" {
					rounds = 3
				}
				for range rounds {
					nc, total := q.hijack(t)
					if q.h.conns[0].Queued() == 0 { // it must work with that too
						t.Log("the system has taken all in the meantime")
					}
					then(t, q, nc)
					expectStream(t, q.peer, 1, total)
					if name != "close" {
						expect(t, q.peer, "after")
					}
				}
				if rounds == 1 {
					expectEnd(t, q.peer, io.EOF)
					q.h.wantCause(1, nil)
					return
				}
				echoes(t, q.peer, "done")
			})
		})
	}
}

// The deadlines of a hijacker apply while it waits for queued bytes to be sent, and after.
func TestHijackQueuedDeadlines(t *testing.T) {
	noHijack(t)
	hijackQueued(t, func(t *testing.T, q *queued) {
		nc, total := q.hijack(t)
		var b [1]byte
		nc.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := nc.Read(b[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read = %v", err)
		}
		nc.SetReadDeadline(time.Now().Add(time.Hour))
		woken := make(chan error, 1)
		go func() {
			_, err := nc.Read(b[:])
			woken <- err
		}()
		nc.SetReadDeadline(time.Now().Add(-1))
		if err := <-woken; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read = %v", err)
		}
		if !hasTLS(nc) { // which never forgets such an error of Write
			nc.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
			if n, err := nc.Write(b[:]); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Write = %d, %v", n, err)
			}
			nc.SetWriteDeadline(time.Time{})
		}
		expectStream(t, q.peer, 1, total) // and the deadline that is over holds for the socket
		send(t, q.peer, "x")
		if h, ok := nc.(interface{ NetConn() net.Conn }); ok && h.NetConn() == nil {
			t.Error("NetConn is nil")
		}
		if _, err := nc.Read(b[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read = %v", err)
		}
		nc.SetDeadline(time.Time{})
		if n, err := nc.Read(b[:]); n != 1 || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		send(t, nc, "after")
		expect(t, q.peer, "after")
		if nc.RemoteAddr().String() != q.peer.LocalAddr().String() || nc.LocalAddr().String() != q.peer.RemoteAddr().String() {
			t.Errorf("%v to %v", nc.LocalAddr(), nc.RemoteAddr())
		}
		nc.Close()
		expectEnd(t, q.peer, io.EOF)
	})
}

// If the connection ends before the queued bytes are sent, the hijacker's calls fail and Close is called.
func TestHijackQueuedConnectionEnds(t *testing.T) {
	for name, end := range map[string]func(q *queued){
		"reset": func(q *queued) { q.below.SetLinger(0); q.below.Close() },
		"abort": func(q *queued) { q.h.conns[0].Abort() },
		"slow":  func(q *queued) { q.h.conns[0].SetWriteTimeout(50 * time.Millisecond) },
		"close": func(q *queued) { q.s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			hijackQueued(t, func(t *testing.T, q *queued) {
				nc, _ := q.hijack(t)
				addr := nc.RemoteAddr().String()
				read := make(chan error, 1)
				go func() {
					_, err := nc.Read(make([]byte, 1))
					read <- err
				}()
				end(q)
				err, cause := <-read, q.h.cause(1)
				want := map[string]func(err error) bool{
					"reset": isLost,
					"abort": func(err error) bool { return errors.Is(err, net.ErrClosed) },
					"slow":  func(err error) bool { return errors.Is(err, server.ErrSlow) },
					"close": func(err error) bool { return errors.Is(err, server.ErrServerClosed) },
				}[name]
				if !want(err) {
					t.Errorf("Read = %v", err)
				}
				if name == "abort" && cause != nil || name != "abort" && !want(cause) {
					t.Errorf("cause %v", cause)
				}
				if _, err := nc.Write(make([]byte, 1)); err == nil {
					t.Error("Write is no error")
				}
				if nc.SetDeadline(time.Now()) == nil && !hasTLS(nc) {
					t.Error("SetDeadline is no error")
				}
				if err := q.h.conns[0].Resume(); !errors.Is(err, net.ErrClosed) {
					t.Errorf("Resume = %v", err)
				}
				if addr != q.below.LocalAddr().String() {
					t.Errorf("address %s", addr)
				}
			})
		})
	}
}

// After Resume, the earlier net.Conn is closed, and closing it again does not close the connection. What it has
// received and not read is for the handler.
func TestHijackedConnAfterResume(t *testing.T) {
	noHijack(t)
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, secure := range []bool{false, true} {
			old := make(chan net.Conn, 1)
			h := &handler{t: t, data: func(c conn, buf []byte) error {
				if c.Value.extra != nil {
					return echo(c, buf)
				}
				nc, err := c.Hijack()
				if err != nil {
					return err
				}
				c.Value.extra = true
				if _, err := io.ReadFull(nc, make([]byte, 2)); err != nil {
					return err
				}
				old <- nc
				return c.Resume()
			}}
			s := &srv{Handler: h, Backend: backend}
			var c net.Conn
			if secure {
				c = connectTLS(t, s)
			} else {
				c = dial(t, start(t, s))
			}
			send(t, c, "hehello")
			expect(t, c, "hello")
			stale := <-old
			if err := stale.Close(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Close = %v", err)
			}
			if _, err := stale.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Read = %v", err)
			}
			if _, err := stale.Write(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Write = %v", err)
			}
			echoes(t, c, "hello")
		}
	})
}

// A goroutine that writes to the connection while it is hijacked and resumed is refused or not, and the connection
// goes on.
func TestTLSWriteDuringResume(t *testing.T) {
	noHijack(t)
	backendtest.Each(t, func(t *testing.T, backend string) {
		h := &handler{t: t, data: reading(func(c conn, text string) error {
			if _, err := c.Hijack(); err != nil {
				return err
			}
			if err := c.Resume(); err != nil {
				return err
			}
			return write(c, text)
		})}
		c := connectTLS(t, &srv{Handler: h, Backend: backend})
		conn := h.conn(1)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := conn.Write([]byte(".")); errors.Is(err, net.ErrClosed) {
					t.Errorf("Write = %v", err)
					return
				}
				await.Pause(20 * time.Microsecond) // so that few dots are queued
			}
		}()
		r := bufio.NewReader(c)
		for range 200 {
			send(t, c, "hello\n")
			if line, err := r.ReadString('\n'); err != nil || strings.Trim(line, ".") != "hello\n" {
				t.Fatalf("%q, %v", line, err)
			}
		}
		close(stop)
		<-stopped
		c.CloseWrite()
		if _, err := io.Copy(io.Discard, r); err != nil { // what is unread at Close would make the system reset the connection
			t.Error(err)
		}
		c.Close()
		h.wantCause(1, nil)
	})
}
