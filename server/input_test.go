package server_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/testclock"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

// withTLS runs a test on each backend, without TLS and with it.
func withTLS(t *testing.T, f func(t *testing.T, backend string, connect func(*srv) net.Conn)) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		t.Run("plain", func(t *testing.T) {
			f(t, backend, func(s *srv) net.Conn { return extended{dial(t, start(t, s))} })
		})
		t.Run("tls", func(t *testing.T) {
			f(t, backend, func(s *srv) net.Conn {
				addr, config := startTLS(t, s)
				return extended{dialTLS(t, addr, config)}
			})
		})
	})
}

// A message of several parts: a count, and as many pieces, each a line with its length and then its bytes.
func parts(pieces ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\r\n", len(pieces))
	for _, p := range pieces {
		fmt.Fprintf(&b, "%d\n%s", len(p), p)
	}
	return b.String()
}

// readParts reads a message of parts.
func readParts(c conn) (pieces [][]byte, err error) {
	number := func() (n int, err error) {
		line, err := c.Line(20)
		if err == nil {
			_, err = fmt.Sscan(string(line), &n)
		}
		return n, err
	}
	n, err := number()
	for range n {
		size, err := number()
		if err != nil {
			return nil, err
		}
		p, err := c.Next(size)
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, p)
	}
	return pieces, err
}

// Messages arrive whole, in pieces, byte by byte and many at once. Each is answered once, in order.
func TestInput(t *testing.T) {
	handlers := map[string]struct {
		request, answer string
		data            func(c conn) ([]byte, error)
	}{
		"line":  {"one\r\n\ntwo\nthree\r\n", "one||two|three|", func(c conn) ([]byte, error) { return c.Line(0) }},
		"until": {"one\x00two\x00\x00", "one\x00|two\x00|\x00|", func(c conn) ([]byte, error) { return c.Until(0, 5) }},
		"peek": {"\x00\x03abc\x00\x00\x00\x05hello", "abc||hello|", func(c conn) ([]byte, error) {
			head, err := c.Peek(2)
			if err != nil {
				return nil, err
			}
			n := 2 + int(binary.BigEndian.Uint16(head))
			b, err := c.Peek(n)
			if err != nil {
				return nil, err
			}
			return b[2:], c.Discard(n)
		}},
		"mark": {parts("a", "", "long enough") + parts() + parts("x"), "a++long enough||x|", func(c conn) ([]byte, error) {
			c.Mark()
			pieces, err := readParts(c)
			return bytes.Join(pieces, []byte("+")), err
		}},
	}
	for name, h := range handlers {
		for _, one := range []bool{false, true} { // one message for each call of Data, or all that have come
			t.Run(fmt.Sprintf("%s one=%v", name, one), func(t *testing.T) {
				withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
					s := &srv{Backend: backend, Handler: &handler{t: t, data: func(c conn, buf []byte) error {
						for {
							b, err := h.data(c)
							if err != nil {
								return err
							}
							if err = write(c, string(b)+"|"); err != nil || one {
								return err
							}
						}
					}}}
					c := connect(s)
					for _, size := range []int{1, 2, 3, 5, 1000} {
						sendPieces(t, c, h.request, size)
						expect(t, c, h.answer)
					}
					many := 2000 / fewer()
					go io.WriteString(c, strings.Repeat(h.request, many))
					expect(t, c, strings.Repeat(h.answer, many))
				})
			})
		}
	}
}

// Half a message is kept, and Data is called when it is complete, not before. Slices stay valid while Data runs.
func TestInputLarge(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		size := 8 << 20 / fewer()
		var calls atomic.Int64
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			calls.Add(1)
			c.Mark()
			head, err := c.Next(8)
			if err != nil {
				return err
			}
			id := binary.BigEndian.Uint64(head)
			body, err := c.Next(size)
			if err != nil {
				return err
			}
			if binary.BigEndian.Uint64(head) != id || !bytes.Equal(body, stream(id, 0, size)) {
				t.Error("a slice is wrong")
			}
			_, err = c.Write(head)
			return err
		}}
		c := connect(&srv{Handler: h, Backend: backend, MaxMessage: size + 8})
		for id := range uint64(3) {
			head := binary.BigEndian.AppendUint64(nil, id)
			go c.Write(append(head, stream(id, 0, size)...))
			expect(t, c, string(head))
		}
		// The first call finds less than all; the next one is for the whole message.
		if n := calls.Load(); n > 3*3 {
			t.Errorf("Data was called %d times for 3 messages", n)
		}
	})
}

// The errors of the input.
func TestInputErrors(t *testing.T) {
	next := func(n int) func(conn) error {
		return func(c conn) error { _, err := c.Next(n); return err }
	}
	line := func(most int) func(conn) error {
		return func(c conn) error { _, err := c.Line(most); return err }
	}
	for name, test := range map[string]struct {
		send string
		call func(c conn) error
		want error
	}{
		"too many bytes":         {"x", next(101), server.ErrTooLong},
		"long line":              {strings.Repeat("x", 11), line(10), server.ErrTooLong},
		"line with end":          {strings.Repeat("x", 10) + "\n", line(10), server.ErrTooLong},
		"line beyond MaxMessage": {strings.Repeat("x", 101), line(0), server.ErrTooLong},
		"end with half a line":   {"half", line(0), io.ErrUnexpectedEOF},
		"end with half":          {"half", next(5), io.ErrUnexpectedEOF},
		"end":                    {"", next(5), io.EOF},
		"end behind a line":      {"line\n", func(c conn) error { return errors.Join(line(0)(c), line(0)(c)) }, io.EOF},
		"end behind a part": {"3\n1\na", func(c conn) error {
			c.Mark()
			_, err := readParts(c)
			return err
		}, io.ErrUnexpectedEOF},
		"parts beyond MaxMessage": {parts(strings.Repeat("x", 60), strings.Repeat("y", 60)), func(c conn) error {
			c.Mark()
			_, err := readParts(c)
			return err
		}, server.ErrTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
				var got atomic.Value
				h := &handler{t: t, data: func(c conn, buf []byte) error {
					err := test.call(c)
					if errors.Is(err, sock.ErrWouldBlock) {
						return nil
					}
					if err != nil {
						got.Store(fmt.Sprint(err))
						if !errors.Is(err, test.want) {
							t.Errorf("%v, want %v", err, test.want)
						}
						return io.EOF
					}
					return nil
				}}
				c := connect(&srv{Handler: h, Backend: backend, MaxMessage: 100})
				send(t, c, test.send)
				if test.want != server.ErrTooLong {
					c.(extended).CloseWrite()
				}
				h.cause(1)
				if got.Load() == nil {
					t.Errorf("no error, want %v", test.want)
				}
			})
		})
	}
	t.Run("negative", func(t *testing.T) {
		errs := make(chan error, 1)
		h := &handler{t: t, data: func(c conn, buf []byte) error { errs <- next(-1)(c); return io.EOF }}
		send(t, dial(t, start(t, &srv{Handler: h})), "x")
		if err := <-errs; err == nil || !strings.Contains(err.Error(), "n must not be negative, got -1") {
			t.Error(err)
		}
	})
}

// A handler that consumes nothing is called once for each arrival, until its input is full. At the end of the stream it
// is called once more.
func TestInputUnconsumed(t *testing.T) {
	peeking := func(t *testing.T) (h *handler, calls chan int) {
		calls = make(chan int, 1000)
		return &handler{t: t, data: func(c conn, buf []byte) error {
			c.Peek(1)
			calls <- c.Buffered()
			return nil
		}}, calls
	}
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		h, calls := peeking(t)
		c := connect(&srv{Handler: h, Backend: backend, MaxMessage: 10})
		for i := 1; i <= 10; i++ {
			send(t, c, "x")
			if n := <-calls; n != i {
				t.Fatalf("%d bytes in call %d", n, i)
			}
		}
		send(t, c, "x")
		h.wantCause(1, server.ErrTooLong)
		if n := len(calls); n != 0 {
			t.Errorf("%d more calls", n)
		}
	})
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		h, calls := peeking(t)
		c := connect(&srv{Handler: h, Backend: backend})
		send(t, c, "x")
		<-calls
		c.(extended).CloseWrite()
		<-calls // for the end
		h.conn(1).Resume()
		h.conn(1).Close()
		h.cause(1)
		if n := len(calls); n != 0 {
			t.Errorf("%d more calls", n)
		}
	})
}

// The end of the stream reaches a handler that consumes one message in each call, and that was called because of the end.
func TestInputEndBehindMessages(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		asked := make(chan struct{})
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			if c.Value.extra == nil {
				if _, err := c.Peek(10); err == sock.ErrWouldBlock {
					c.Value.extra = "asked"
					close(asked)
					return err
				}
				t.Error("Peek has found 10 bytes")
			}
			b, err := c.Next(2)
			if err == nil {
				_, err = c.Write(b)
			}
			return err
		}}
		c := connect(&srv{Handler: h, Backend: backend})
		send(t, c, "abcdef")
		<-asked
		c.(extended).CloseWrite()
		expect(t, c, "abcdef")
		expectEnd(t, c, io.EOF)
		h.wantCause(1, nil)
	})
}

// Read returns the bytes of the input first, and so does a goroutine that has the connection after Pause.
func TestInputReadAndPause(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			line, err := c.Line(0)
			if err != nil {
				return err
			}
			switch string(line) {
			case "read":
				n, err := c.Read(buf[:3])
				if err != nil {
					return err
				}
				return write(c, string(buf[:n])+"\n")
			case "pause":
				c.Pause()
				go func() {
					defer c.Resume()
					var err error
					for range await.Attempts(t, "a line") { // as a goroutine may do that has no better way
						if line, err = c.Line(0); err != sock.ErrWouldBlock {
							break
						}
					}
					c.Write(append(bytes.Clone(line), " paused\n"...))
				}()
				return nil
			}
			return write(c, string(line)+"\n")
		}}
		c := connect(&srv{Handler: h, Backend: backend})
		for range 20 {
			send(t, c, "one\nread\nabcpause\ntwo\nthree\n")
			expect(t, c, "one\nabc\ntwo paused\nthree\n")
			send(t, c, "pause\nha")
			send(t, c, "lf\nlast\n")
			expect(t, c, "half paused\nlast\n")
		}
	})
}

// sayHijacked is a hijacker that writes a word and ends the connection.
func sayHijacked(nc net.Conn) {
	nc.Write([]byte("hijacked"))
	nc.Close()
}

// A hijacker reads the bytes of the input first, and gives those back that it has not read.
func TestInputHijack(t *testing.T) {
	noHijack(t)
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			line, err := c.Line(0)
			if err != nil {
				return err
			}
			if string(line) != "hijack" {
				return write(c, string(line)+"\n")
			}
			return hijack(c, func(nc net.Conn) {
				b := make([]byte, 3)
				if _, err := io.ReadFull(nc, b); err != nil {
					t.Error(err)
				}
				nc.Write(append(b, '\n'))
				c.Resume()
			})
		}}
		c := connect(&srv{Handler: h, Backend: backend})
		for range 10 {
			send(t, c, "hijack\nabcone\ntwo\n")
			expect(t, c, "abc\none\ntwo\n")
			send(t, c, "hijack\n")
			send(t, c, "ab")
			send(t, c, "cone\n")
			expect(t, c, "abc\none\n")
		}
	})
}

// A connection whose input was used and has no bytes can be hijacked.
func TestInputHijackEmpty(t *testing.T) {
	noHijack(t)
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			c.Mark()
			if _, err := c.Read(buf[:1]); err != nil {
				return err
			}
			return hijack(c, sayHijacked)
		}}
		c := connect(&srv{Handler: h, Backend: backend})
		send(t, c, "x")
		expect(t, c, "hijacked")
	})
}

// A message that takes longer than ReadTimeout closes its connection, however often a byte of it arrives. A connection
// that has nothing of a message stays, and so does one whose handler has paused it.
func TestMessageTimeout(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			for {
				line, err := c.Line(0)
				if err != nil {
					return err
				}
				if err := write(c, string(line)+"\n"); err != nil {
					return err
				}
				if string(line) == "pause" {
					c.Pause()
					return nil
				}
			}
		}}
		clock := testclock.Install(t)
		s := &srv{Handler: h, Backend: backend, ReadTimeout: time.Second}
		slow := connect(s)
		echoes(t, slow, "first\n")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			io.Copy(io.Discard, slow)
		}()
		for over := false; !over; {
			slow.Write([]byte("x"))
			select {
			case <-ended:
				over = true
			default:
				clock.Advance(10 * time.Millisecond)
			}
		}
		if err := h.cause(1); err != server.ErrMessageTimeout || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("cause %v", err)
		}
		if st := s.Stats(); st.TimedOut.Message != 1 {
			t.Errorf("%+v", st)
		}
	})
	backendtest.Each(t, func(t *testing.T, backend string) {
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			line, err := c.Line(0)
			if err == nil && string(line) == "pause" {
				c.Pause()
			}
			return err
		}}
		s := &srv{Handler: h, Backend: backend, ReadTimeout: time.Second}
		passing(t)
		addr := start(t, s)
		silent, paused := dial(t, addr), dial(t, addr)
		send(t, silent, "line\n")
		send(t, paused, "pause\nhalf")
		slow := dial(t, addr)
		send(t, slow, "half")
		h.cause(1) // that one
		wait(t, func() bool { return s.Stats().Conns == 2 })
		if st := s.Stats(); st.TimedOut.Message != 1 {
			t.Errorf("%+v", st)
		}
	})
}
