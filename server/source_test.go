package server_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/testclock"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

// A supplier is a reader of a stream, in pieces.
type supplier struct {
	id     uint64
	pos    atomic.Int64
	size   int64
	fail   func() error // at the end; nil means io.EOF
	closed atomic.Int32
}

func (p *supplier) Read(b []byte) (int, error) {
	pos := p.pos.Load()
	if pos == p.size {
		if p.fail != nil {
			return 0, p.fail()
		}
		return 0, io.EOF
	}
	n := copy(b, stream(p.id, int(pos), int(min(p.size-pos, int64(len(b))))))
	p.pos.Add(int64(n))
	return n, nil
}

func (p *supplier) Close() error { p.closed.Add(1); return nil }

// expectStream reads a part of a stream.
func expectStream(t testing.TB, c net.Conn, id uint64, size int) {
	t.Helper()
	buf := make([]byte, 64<<10)
	for pos := 0; pos < size; {
		n, err := c.Read(buf[:min(len(buf), size-pos)])
		if !bytes.Equal(buf[:n], stream(id, pos, n)) {
			t.Fatalf("wrong bytes after %d", pos)
		}
		if pos += n; err != nil && pos < size {
			t.Fatalf("%d of %d bytes, %v", pos, size, err)
		}
	}
}

// fileWith returns an open file with a part of a stream.
func fileWith(t testing.TB, id uint64, size int) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, stream(id, 0, size), 0o600))
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func isClosedFile(f *os.File) bool {
	_, err := f.Stat()
	return errors.Is(err, os.ErrClosed)
}

// Writes, readers and files are sent in the order of the calls. Data is called again after the last, for pipelined requests too.
func TestStreamOrder(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		size := 3 << 20 / fewer()
		var made []*supplier
		var files []*os.File
		h := &handler{t: t}
		h.data = func(c conn, buf []byte) error {
			for {
				if _, err := c.Line(0); err != nil {
					return err
				}
				if len(made) > 0 && made[len(made)-1].closed.Load() != 1 {
					t.Error("Data is called before the reader has ended")
				}
				p, f := &supplier{id: 2, size: int64(size)}, fileWith(t, 4, size)
				made, files = append(made, p), append(files, f)
				c.Write([]byte("before"))
				if err := c.Stream(p); err != nil {
					return err
				}
				if n, err := c.Write(stream(3, 0, 1000)); n != 1000 || err != nil {
					t.Errorf("Write behind a stream = %d, %v", n, err)
				}
				c.Writev([][]byte{[]byte("be"), nil, []byte("tween")})
				if err := c.SendFile(f, 10, int64(size-20)); err != nil {
					return err
				}
				c.Write([]byte("after"))
			}
		}
		s := &srv{Handler: h, Backend: backend}
		c := connect(s)
		const n = 3
		send(t, c, strings.Repeat("line\n", n))
		for range n {
			expect(t, c, "before")
			expectStream(t, c, 2, size)
			expectStream(t, c, 3, 1000)
			expect(t, c, "between")
			got := make([]byte, size-20)
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, stream(4, 0, size)[10:size-10]) {
				t.Fatal("wrong bytes of the file", err)
			}
			expect(t, c, "after")
		}
		c.Close()
		h.cause(1)
		for i := range n {
			if k := made[i].closed.Load(); k != 1 || !isClosedFile(files[i]) {
				t.Errorf("reader closed %d times, file closed: %v", k, isClosedFile(files[i]))
			}
		}
	})
}

// A reader that has nothing is read again after WantWritable, and costs nothing in between. WriteTimeout does not apply to it.
func TestStreamWaits(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		var mu sync.Mutex
		var ready []byte
		reads, over := 0, false
		r := readerFunc(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			reads++
			n := copy(b, ready)
			ready = ready[n:]
			switch {
			case n > 0:
				return n, nil
			case over:
				return 0, io.EOF
			}
			return 0, sock.ErrWouldBlock
		})
		h := &handler{t: t, open: func(c conn) error { return c.Stream(r) }}
		s := &srv{Handler: h, Backend: backend, WriteTimeout: 500 * time.Millisecond}
		clock := testclock.Install(t)
		c := connect(s)
		for range 2 {
			wait(t, func() bool { return server.SourceWaits(h.conn(1)) })
			clock.Advance(700 * time.Millisecond) // longer than WriteTimeout
			mu.Lock()
			ready = []byte("some")
			mu.Unlock()
			h.conn(1).WantWritable()
			expect(t, c, "some")
		}
		mu.Lock()
		if over = true; reads > 20 {
			t.Errorf("%d calls of a reader that had something twice", reads)
		}
		mu.Unlock()
		h.conn(1).WantWritable()
		echoes(t, c, "echo")
	})
}

type readerFunc func(b []byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// Close and CloseWrite end the stream to the peer after the last source.
func TestStreamClose(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		size := 2 << 20 / fewer()
		for name, end := range map[string]func(conn) error{"close": conn.Close, "closewrite": conn.CloseWrite} {
			t.Run(name, func(t *testing.T) {
				p, f := &supplier{id: 5, size: int64(size)}, fileWith(t, 6, size)
				h := &handler{t: t, open: func(c conn) error {
					return errors.Join(c.Stream(p), c.SendFile(f, 0, -1), end(c))
				}}
				c := connect(&srv{Handler: h, Backend: backend})
				expectStream(t, c, 5, size)
				expectStream(t, c, 6, size)
				expectEnd(t, c, io.EOF) // with TLS, only after a close_notify
				late := &supplier{}
				if err := h.conn(1).Stream(late); !errors.Is(err, net.ErrClosed) || late.closed.Load() != 1 {
					t.Errorf("Stream after the end = %v, reader closed %d times", err, late.closed.Load())
				}
				c.Close()
				if err := h.cause(1); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// A source that fails closes the connection, with its error as the cause. A panic is handled as one of the handler.
func TestStreamFails(t *testing.T) {
	failure := errors.New("no more")
	for name, c := range map[string]struct {
		start func(t *testing.T, c conn) error
		is    func(error) bool
	}{
		"reader": {func(t *testing.T, c conn) error {
			return c.Stream(&supplier{id: 1, size: 4, fail: func() error { return failure }})
		}, func(err error) bool { return err == failure }},
		"no progress": {func(t *testing.T, c conn) error {
			return c.Stream(&supplier{id: 1, size: 4, fail: func() error { return nil }})
		}, func(err error) bool { return err == io.ErrNoProgress }},
		"panic": {func(t *testing.T, c conn) error {
			return c.Stream(&supplier{id: 1, size: 4, fail: func() error { panic("reader") }})
		}, func(err error) bool {
			var e *server.PanicError
			return errors.As(err, &e) && e.Value == "reader"
		}},
		"goexit": {func(t *testing.T, c conn) error {
			return c.Stream(&supplier{id: 1, size: 4, fail: func() error { runtime.Goexit(); return nil }})
		}, func(err error) bool { var e *server.PanicError; return errors.As(err, &e) }},
		"short file": {func(t *testing.T, c conn) error { return c.SendFile(fileWith(t, 1, 4), 0, 5) },
			func(err error) bool { return err == io.ErrUnexpectedEOF }},
		"closed file": {func(t *testing.T, c conn) error {
			f := fileWith(t, 1, 4)
			c.Write(stream(1, 0, 4))
			f.Close()
			return c.SendFile(f, 0, 5)
		}, func(err error) bool { return errors.Is(err, os.ErrClosed) }},
	} {
		t.Run(name, func(t *testing.T) {
			withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
				h := &handler{t: t, data: reading(func(co conn, _ string) error { return c.start(t, co) })}
				co := connect(&srv{Handler: h, Backend: backend, Workers: 1})
				send(t, co, "x")
				expectStream(t, co, 1, 4)
				if err := h.cause(1); !c.is(err) {
					t.Errorf("cause %v", err)
				}
			})
		})
	}
	if err := new(server.Conn[int]).Stream(nil); err == nil {
		t.Error("Stream(nil) succeeded")
	}
	if err := new(server.Conn[int]).SendFile(nil, 0, 0); err == nil {
		t.Error("SendFile of no file succeeded")
	}
	if f := fileWith(t, 1, 1); new(server.Conn[int]).SendFile(f, -1, 0) == nil || !isClosedFile(f) {
		t.Error("SendFile from a negative offset succeeded, or left the file open")
	}
}

// Without TLS the bytes of a file are never queued.
func TestSendFileQueuesNothing(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		piece := 1 << 20 / fewer()
		size := 64 * piece
		f := fileWith(t, 7, size)
		h := &handler{t: t, open: func(c conn) error { return c.SendFile(f, 0, -1) }}
		s := &srv{Handler: h, Backend: backend}
		c := extended{dial(t, start(t, s))}
		for pos := 0; pos < size; pos += piece {
			if q := s.Stats().QueuedBytes; q != 0 {
				t.Fatalf("%d bytes are queued", q)
			}
			b := make([]byte, piece)
			if _, err := io.ReadFull(c, b); err != nil || !bytes.Equal(b, stream(7, pos, len(b))) {
				t.Fatalf("wrong bytes from %d, %v", pos, err)
			}
		}
	})
}

// Shutdown waits for the end of a stream.
func TestStreamShutdown(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		size := 16 << 20 / fewer()
		h := &handler{t: t, data: reading(func(c conn, _ string) error {
			return c.Stream(&supplier{id: 8, size: int64(size)})
		})}
		s := &srv{Handler: h, Backend: backend}
		c := connect(s)
		send(t, c, "x")
		expectStream(t, c, 8, 1)
		done := shuttingDown(t, s)
		expectAll(t, c, stream(8, 1, size-1))
		done()
	})
}

// While a Stream is unfinished Data is not called, not even after Resume or because of Shutdown.
func TestStreamKeepsData(t *testing.T) {
	for _, why := range []string{"resume", "shutdown"} {
		t.Run(why, func(t *testing.T) {
			var over atomic.Bool
			p := &supplier{fail: func() error {
				if over.Load() {
					return io.EOF
				}
				return sock.ErrWouldBlock
			}}
			h := &handler{t: t}
			h.data = func(c conn, buf []byte) error {
				n, err := c.Read(buf)
				if c == h.conn(1) && n == 0 && !over.Load() {
					t.Error("a call of Data while the Stream is unfinished:", err)
				}
				if string(buf[:n]) == "stream" {
					return c.Stream(p)
				}
				c.Write(buf[:n])
				return err
			}
			s := &srv{Handler: h, Workers: 1}
			addr := start(t, s)
			c, other := dial(t, addr), dial(t, addr)
			send(t, c, "stream")
			send(t, other, "a") // the worker has called Data for both
			expect(t, other, "a")
			down := make(chan struct{})
			switch why {
			case "resume":
				h.conn(1).Pause()
				h.conn(1).Resume()
				close(down)
				send(t, other, "b") // the worker has seen the Resume
				expect(t, other, "b")
			case "shutdown":
				go func() { shutdown(t, s); close(down) }()
				expectEnd(t, other, io.EOF) // which has no Stream
			}
			over.Store(true)
			h.conn(1).WantWritable()
			if why == "resume" {
				echoes(t, c, "c")
				c.CloseWrite()
			}
			expectEnd(t, c, io.EOF)
			<-down
		})
	}
}

// Hijack fails while something is streamed, and works afterwards.
func TestStreamHijack(t *testing.T) {
	noHijack(t)
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		h := &handler{t: t, data: reading(func(c conn, text string) error {
			if text == "stream" {
				c.Stream(&supplier{id: 9, size: 10})
				if _, err := c.Hijack(); err == nil {
					t.Error("Hijack of a connection that streams succeeded")
				}
				return nil
			}
			return hijack(c, sayHijacked)
		})}
		c := connect(&srv{Handler: h, Backend: backend})
		send(t, c, "stream")
		expectStream(t, c, 9, 10)
		send(t, c, "hijack")
		expect(t, c, "hijacked")
		h.cause(1)
	})
}

// A peer that does not take a stream is closed after WriteTimeout, a connection whose reader has nothing after IdleTimeout,
// and Abort ends a stream at once. The reader is closed in each case.
func TestStreamCut(t *testing.T) {
	endless := int64(1) << 50
	for name, cut := range map[string]struct {
		set  func(s *srv)
		src  *supplier
		act  func(c conn)
		want error
	}{
		"slow peer": {func(s *srv) { s.WriteTimeout = 50 * time.Millisecond }, &supplier{size: endless}, nil, server.ErrSlow},
		"idle reader": {func(s *srv) { s.IdleTimeout = 50 * time.Millisecond },
			&supplier{fail: func() error { return sock.ErrWouldBlock }}, nil, server.ErrIdle},
		"closed before an idle reader": {func(s *srv) { s.WriteTimeout = 50 * time.Millisecond },
			&supplier{fail: func() error { return sock.ErrWouldBlock }}, func(c conn) { c.Close() }, server.ErrSlow},
		"abort": {func(s *srv) {}, &supplier{size: endless}, func(c conn) { c.Abort() }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
				p := &supplier{size: cut.src.size, fail: cut.src.fail}
				streams := make(chan struct{})
				h := &handler{t: t, open: func(c conn) error {
					defer close(streams)
					return c.Stream(p)
				}}
				h.closed = func(conn, error) {
					if k := p.closed.Load(); k != 1 {
						t.Errorf("reader closed %d times before Close", k)
					}
				}
				s := &srv{Handler: h, Backend: backend}
				cut.set(s)
				connect(s)
				if c := h.conn(1); cut.act != nil {
					<-streams // Stream fails on a closed connection
					cut.act(c)
				}
				h.wantCause(1, cut.want)
			})
		})
	}
}

// One worker serves others while it streams to peers that read as fast as they can.
func TestStreamServesOthers(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			n, err := c.Read(buf)
			if err != nil || string(buf[:n]) == "echo" {
				c.Write(buf[:n])
				return err
			}
			return c.Stream(readerFunc(func(b []byte) (int, error) { return len(b), nil }))
		}}
		s := &srv{Handler: h, Backend: backend, Workers: 1}
		addr, config := startTLS(t, s)
		fast, other := dialTLS(t, addr, config), extended{dialTLS(t, addr, config)}
		send(t, fast, "stream")
		var wg sync.WaitGroup
		wg.Go(func() { io.Copy(io.Discard, fast) })
		for range 20 {
			echoes(t, other, "echo")
		}
		fast.Close()
		wg.Wait()
	})
}

// The memory for an answer of 1 GiB to a peer that reads slowly is bounded by one piece, while 1,000 others are served.
func TestSlowReaderOfLargeAnswer(t *testing.T) {
	size, others := int64(1)<<30, 1000
	if testing.Short() || fewer() > 1 {
		size, others = 16<<20, 50
	}
	for _, with := range []string{"plain", "tls"} {
		t.Run(with, func(t *testing.T) {
			p := &zeros{left: size}
			h := &handler{t: t, data: reading(func(c conn, text string) error {
				if text == "large" {
					return c.Stream(p)
				}
				return write(c, text)
			})}
			const piece = 32 << 10
			s := &srv{Handler: h, BufferSize: piece, MaxQueuedTotal: 1 << 20}
			var dialOne func() net.Conn
			if with == "tls" {
				addr, config := startTLS(t, s)
				dialOne = func() net.Conn { return extended{dialTLS(t, addr, config)} }
			} else {
				addr := start(t, s)
				dialOne = func() net.Conn { return extended{dial(t, addr)} }
			}
			var most atomic.Int64
			watched := func() {
				if q := s.Stats().QueuedBytes; q > most.Load() {
					most.Store(q)
				}
			}
			slow := dialOne()
			send(t, slow, "large")
			if with == "tls" {
				others /= 10 // handshakes
			}
			var wg sync.WaitGroup
			for range others {
				c := dialOne()
				wg.Go(func() {
					defer c.Close()
					for range 5 {
						if _, err := c.Write([]byte("echo")); err != nil {
							t.Error(err)
							return
						}
						if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
							t.Error(err)
							return
						}
						watched()
					}
				})
			}
			wg.Wait()
			buf := make([]byte, 1<<20)
			total := int64(0)
			for total < size {
				n, err := slow.Read(buf)
				if total += int64(n); err != nil {
					t.Fatal(total, err)
				}
				if ahead := p.made.Load() - total; ahead > 64<<20 {
					t.Fatalf("the reader is %d bytes ahead of the peer", ahead)
				}
				watched()
			}
			if q := most.Load(); q > piece+piece/8 { // TLS adds some
				t.Errorf("%d bytes were queued", q)
			}
		})
	}
}

// A zeros is a reader of zeros.
type zeros struct {
	left int64
	made atomic.Int64
}

func (z *zeros) Read(b []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := int(min(z.left, int64(len(b))))
	clear(b[:n])
	z.left -= int64(n)
	z.made.Add(int64(n))
	return n, nil
}
