package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

// Many clients send more than the buffers between them hold, over TCP and Unix sockets, on one server.
func TestEcho(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		for _, ports := range []int{1, 3} {
			t.Run(fmt.Sprint("ports=", ports), func(t *testing.T) {
				s := &srv{Handler: &handler{t: t}, Backend: backend, Workers: 3, Ports: ports}
				addr := start(t, s)
				ul, err := net.Listen("unix", socketPath(t))
				if err != nil {
					t.Fatal(err)
				}
				serve(t, s, ul)
				const clients, size = 8, 1 << 20
				var wg sync.WaitGroup
				for i := range clients {
					var c interface {
						net.Conn
						CloseWrite() error
					}
					if i%4 == 0 {
						u, err := net.Dial("unix", ul.Addr().String())
						if err != nil {
							t.Fatal(err)
						}
						u.SetDeadline(time.Now().Add(soon))
						t.Cleanup(func() { u.Close() })
						c = u.(*net.UnixConn)
					} else {
						c = dial(t, addr)
					}
					want := make([]byte, size)
					rng := rand.New(rand.NewPCG(uint64(i), 1))
					for i := range want {
						want[i] = byte(rng.Uint32())
					}
					wg.Go(func() {
						if _, err := c.Write(want); err != nil {
							t.Error(err)
						}
						c.CloseWrite()
					})
					wg.Go(func() {
						got, err := io.ReadAll(c)
						if err != nil || !bytes.Equal(got, want) {
							t.Errorf("client %d: %d bytes, %v", i, len(got), err)
						}
					})
				}
				wg.Wait()
				wait(t, func() bool { return s.Stats().Conns == 0 })
				if st := s.Stats(); st.Accepted != clients || st.Panics+st.Refused+st.Slow+st.Idle+st.Overloads != 0 {
					t.Errorf("%+v", st)
				}
			})
		}
	})
}

// A handler that reads a byte at a time is told of the rest again and again.
func TestLeftUnread(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		h := &handler{t: t, data: func(c conn, buf []byte) error { return echo(c, buf[:1]) }}
		addr := start(t, &srv{Handler: h, Backend: backend})
		c := dial(t, addr)
		send(t, c, "hello, world")
		expect(t, c, "hello, world")
	})
}

// A handler that reads until there is nothing costs no more.
func TestDrainLoop(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			for {
				if err := echo(c, buf[:3]); err != nil {
					return err
				}
			}
		}}
		c := dial(t, start(t, &srv{Handler: h, Backend: backend}))
		for range 100 {
			send(t, c, "hello, world")
			expect(t, c, "hello, world")
		}
	})
}

// A peer that ends its stream can be answered after that.
func TestHalfClose(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			for {
				n, err := c.Read(buf[:4])
				c.State.got = append(c.State.got, buf[:n]...)
				if err == io.EOF {
					if _, err := c.Read(buf); err != io.EOF {
						t.Errorf("Read after the end = %v", err)
					}
					go func() { // later, from elsewhere
						c.Write([]byte("you said " + string(c.State.got)))
						if err := c.CloseWrite(); err != nil {
							t.Error(err)
						}
						if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
							t.Errorf("Write after CloseWrite = %v", err)
						}
					}()
					return nil
				}
				if err != nil {
					return err
				}
			}
		}}
		c := dial(t, start(t, &srv{Handler: h, Backend: backend}))
		send(t, c, "one two ")
		send(t, c, "three")
		c.CloseWrite()
		expect(t, c, "you said one two three")
		expectEnd(t, c, io.EOF)
		if err := h.cause(1); err != nil {
			t.Errorf("cause %v", err)
		}
	})
}

// A peer that resets ends the connection, whatever it is waiting for.
func TestReset(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		for _, when := range []string{"idle", "paused", "after its end", "queued"} {
			t.Run(when, func(t *testing.T) {
				h := &handler{t: t, data: func(c conn, buf []byte) error {
					for {
						if _, err := c.Read(buf); err == io.EOF {
							c.Write([]byte("ok"))
							return nil
						} else if err != nil {
							return err
						}
					}
				}}
				s := &srv{Handler: h, Backend: backend}
				c := dial(t, start(t, s))
				switch when {
				case "paused":
					h.conn(1).Pause()
				case "after its end":
					c.CloseWrite()
					expect(t, c, "ok")
				case "queued":
					fill(t, h.conn(1))
				}
				c.SetLinger(0)
				c.Close()
				if err := h.cause(1); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
					t.Errorf("cause %v", err)
				} else if when == "idle" && !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("cause %v", err)
				}
			})
		}
	})
}

// fill writes until something is queued.
func fill(t testing.TB, c conn) (total int) {
	t.Helper()
	b := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
	for c.Queued() == 0 {
		n, err := c.Write(b[total%16:])
		if total += n; err != nil && err != server.ErrQueueFull {
			t.Fatal(err)
		}
	}
	return total
}

// Writing more than may be queued is refused without a loss, and Writable tells when to go on.
func TestWritable(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		const size = 32 << 20
		pattern := make([]byte, size)
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range pattern {
			pattern[i] = byte(rng.Uint32())
		}
		refused := 0
		more := func(c conn) error {
			at := c.State.extra.(int)
			n, err := c.Write(pattern[at:])
			c.State.extra = at + n
			if q := c.Queued(); q > 100_000 {
				t.Errorf("%d bytes are queued", q)
			}
			switch {
			case err == server.ErrQueueFull:
				refused++
				return nil
			case err != nil:
				return err
			}
			return c.Close()
		}
		h := &writable{handler: &handler{t: t, open: func(c conn) error {
			c.State.extra = 0
			return more(c)
		}}, writable: more}
		s := &srv{Handler: h, Backend: backend, WriteQueue: 100_000}
		c := dial(t, start(t, s))
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, pattern) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if err := h.cause(1); err != nil || refused == 0 {
			t.Errorf("cause %v, %d writes refused", err, refused)
		}
	})
}

// Goroutines write to a connection that is idle, and to one that is busy.
func TestPush(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		const length = 503
		h := &handler{t: t, data: func(c conn, buf []byte) error { // whole lines only
			n, err := c.Read(buf)
			if err != nil {
				return err
			}
			b := append(c.State.got, buf[:n]...)
			whole := len(b) - len(b)%length
			_, err = c.Write(b[:whole])
			c.State.got = append([]byte(nil), b[whole:]...)
			return err
		}}
		s := &srv{Handler: h, Backend: backend, WriteQueue: 64 << 20}
		c := dial(t, start(t, s))
		pushed := h.conn(1)
		const writers, lines = 4, 5000
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range lines {
					line := fmt.Sprintf("%d %0500d\n", w, i)
					if n, err := pushed.Write([]byte(line)); n != len(line) || err != nil {
						t.Errorf("Write = %d, %v", n, err)
						return
					}
				}
			})
		}
		wg.Go(func() { // and what the handler answers is in between
			for range 1000 {
				c.Write([]byte("9 " + strings.Repeat("x", 500) + "\n"))
			}
		})
		got := make([]int, 10)
		line := make([]byte, length)
		for range writers*lines + 1000 {
			if _, err := io.ReadFull(c, line); err != nil {
				t.Fatal(err)
			}
			w := line[0] - '0'
			if w < writers && string(line) != fmt.Sprintf("%d %0500d\n", w, got[w]) {
				t.Fatalf("%q is not line %d", line, got[w])
			}
			got[w]++
		}
		wg.Wait()
	})
}

// A peer that never reads holds up itself alone: what is kept for it is bounded, and others are served.
func TestNeverReads(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		h := &handler{t: t}
		s := &srv{Handler: h, Backend: backend, WriteQueue: 1 << 20}
		addr := start(t, s)
		bad := dial(t, addr)
		stuck := make(chan struct{})
		go func() {
			defer close(stuck)
			b := make([]byte, 1<<20)
			for {
				bad.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
				if _, err := bad.Write(b); err != nil {
					return
				}
			}
		}()
		<-stuck
		if q := s.Stats().Queued; q > 1<<20 {
			t.Errorf("%d bytes are queued", q)
		}
		good := dial(t, addr)
		for range 100 {
			send(t, good, "hello")
			expect(t, good, "hello")
		}
	})
}

// Close sends what is queued; Abort does not.
func TestClose(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		for _, from := range []string{"handler", "outside"} {
			for _, abort := range []bool{false, true} {
				t.Run(fmt.Sprint(from, " abort=", abort), func(t *testing.T) {
					h := &handler{t: t, data: func(c conn, buf []byte) error {
						if abort {
							return c.Abort()
						}
						c.Read(buf) // or closing resets
						return c.Close()
					}}
					s := &srv{Handler: h, Backend: backend}
					c := dial(t, start(t, s))
					total := fill(t, h.conn(1))
					switch {
					case from == "handler":
						send(t, c, "x")
					case abort:
						h.conn(1).Abort()
					default:
						h.conn(1).Close()
					}
					n, err := io.Copy(io.Discard, c)
					if abort {
						if !errors.Is(err, syscall.ECONNRESET) {
							t.Errorf("%d bytes, %v", n, err)
						}
					} else if int(n) != total || err != nil {
						t.Errorf("%d bytes of %d, %v", n, total, err)
					}
					if err := h.cause(1); err != nil {
						t.Errorf("cause %v", err)
					}
					if err := h.conn(1).Close(); !errors.Is(err, net.ErrClosed) {
						t.Errorf("second Close = %v", err)
					}
				})
			}
		}
	})
}

// Connections are closed from everywhere while their handlers are busy.
func TestCloseRaces(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		before := descriptors(t)
		h := &handler{t: t}
		s := &srv{Handler: h, Backend: backend, Workers: 4}
		addr := start(t, s)
		var wg sync.WaitGroup
		const rounds = 60
		for i := range 4 * rounds {
			c := dial(t, addr)
			wg.Go(func() {
				for {
					if _, err := c.Write([]byte("hello")); err != nil {
						break
					}
					if _, err := c.Read(make([]byte, 100)); err != nil {
						break
					}
				}
				c.Close()
			})
			sc := h.conn(i + 1)
			for k := range 2 {
				wg.Go(func() {
					time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
					if (i+k)%2 == 0 {
						sc.Close()
					} else {
						sc.Abort()
					}
				})
			}
		}
		wg.Wait()
		wait(t, func() bool { return s.Stats().Conns == 0 })
		s.Close()
		shutdown(t, s)
		wait(t, func() bool { return descriptors(t) <= before })
	})
}

func TestShutdown(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		release := make(chan struct{})
		busy := make(chan struct{}, 1)
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			n, err := c.Read(buf)
			if err != nil {
				return err
			}
			if string(buf[:n]) == "busy" {
				busy <- struct{}{}
				<-release
			}
			_, err = c.Write(buf[:n])
			return err
		}}
		s := &srv{Handler: h, Backend: backend, Workers: 2}
		addr := start(t, s)
		idle, working := dial(t, addr), dial(t, addr)
		send(t, idle, "hello")
		expect(t, idle, "hello")
		send(t, working, "busy")
		<-busy
		done := make(chan error, 1)
		go func() { done <- s.Shutdown(t.Context()) }()
		expectEnd(t, idle, io.EOF) // while the other one is at work
		select {
		case err := <-done:
			t.Errorf("Shutdown did not wait: %v", err)
		default:
		}
		close(release)
		expect(t, working, "busy")
		expectEnd(t, working, io.EOF)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := s.ListenAndServe("tcp", "127.0.0.1:0"); err != server.ErrServerClosed {
			t.Errorf("ListenAndServe = %v", err)
		}
		if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial = %v", err)
		}
	})
}

// When the context is done, Shutdown closes what has not ended.
func TestShutdownExpires(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		h := &handler{t: t, data: func(c conn, buf []byte) error { // never closes
			if _, err := c.Read(buf); err != io.EOF {
				return err
			}
			return nil
		}}
		s := &srv{Handler: h, Backend: backend}
		c := dial(t, start(t, s))
		h.conn(1)
		cause := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, cause)
		defer cancel()
		if err := s.Shutdown(ctx); err != cause {
			t.Errorf("Shutdown = %v", err)
		}
		expectEnd(t, c, io.EOF)
		if err := h.cause(1); err != server.ErrServerClosed {
			t.Errorf("cause %v", err)
		}
	})
}

func TestListenAndServe(t *testing.T) {
	s := &srv{Handler: &handler{t: t}}
	path := socketPath(t)
	done := make(chan error, 1)
	go func() { done <- s.ListenAndServe("unix", path) }()
	var c net.Conn
	wait(t, func() (ok bool) {
		var err error
		c, err = net.Dial("unix", path)
		return err == nil
	})
	defer c.Close()
	send(t, c, "hello")
	expect(t, c, "hello")
	s.Close()
	if err := <-done; err != server.ErrServerClosed {
		t.Error(err)
	}
	shutdown(t, s)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the path stays: %v", err)
	}
}

func TestServeErrors(t *testing.T) {
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := new(srv).ServeSocket(l); err == nil {
		t.Error("no Handler is no error")
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
	if err := (&srv{Handler: &handler{t: t}, Workers: -1}).ListenAndServe("tcp", "127.0.0.1:0"); err == nil {
		t.Error("-1 workers is no error")
	}
	if err := (&srv{Handler: &handler{t: t}, Backend: "abacus"}).ListenAndServe("tcp", "127.0.0.1:0"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if err := (&srv{Handler: &handler{t: t}}).Serve(notSocket{a}); err == nil {
		t.Error("a listener without a socket is no error")
	}
	s := &srv{Handler: &handler{t: t}}
	if u, err := sock.New(sock.TCP4); err != nil {
		t.Fatal(err)
	} else if err := s.ServeSocket(u); err == nil {
		t.Error("a socket that does not listen is no error")
	}
	s.Close()
	shutdown(t, s)
}

type notSocket struct{ net.Conn }

func (notSocket) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (notSocket) Addr() net.Addr            { return nil }
