package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/testclock"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

// A mark ends with the handler's call that has set it, also if a goroutine has used the input after
// Pause and before that call has returned. Bytes that were consumed since the mark do not come
// again.
func TestMarkEndsAtResume(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		returned := make(chan struct{})
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			for {
				if c.Value.extra == nil && c.Buffered() == 0 {
					c.Mark()
				}
				b, err := c.Next(1)
				if err != nil {
					return err
				}
				if _, err := c.Write(b); err != nil {
					return err
				}
				if b[0] != 'C' {
					continue
				}
				c.Value.extra = true
				c.Pause()
				used := make(chan struct{})
				go func() {
					c.Buffered()
					close(used)
					<-returned
					c.Resume()
				}()
				<-used
				return nil
			}
		}}
		addr := start(t, &srv{Handler: h, Backend: backend, Workers: 1})
		first, second := dial(t, addr), dial(t, addr)
		echoes(t, first, "ABC")
		send(t, second, "X") // is answered by the same worker, when the first call has ended
		expect(t, second, "X")
		close(returned)
		for _, text := range []string{"D", "EF", "G"} {
			send(t, first, text)
			expect(t, first, text)
		}
	})
}

// A call of Writable that comes before Data after Resume finds the bytes of the input first that a
// hijacker has not read.
func TestWritableAfterHijackReadsInputFirst(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		read := func(c conn) error {
			b := make([]byte, 1)
			n, err := c.Read(b)
			c.Value.got = append(c.Value.got, b[:n]...)
			if len(c.Value.got) < len("XYZ") {
				return err
			}
			c.Write(c.Value.got)
			return io.EOF
		}
		resumed := make(chan struct{})
		h := &writable{handler: &handler{t: t}, writable: read}
		h.data = func(c conn, buf []byte) error {
			if c.Value.extra != nil {
				return read(c)
			}
			c.Value.extra = true
			if _, err := c.Line(0); err != nil {
				return err
			}
			if _, err := fillQueue(c); err != nil {
				return err
			}
			if _, err := c.Hijack(); err != nil {
				return err
			}
			defer close(resumed)
			return c.Resume()
		}
		c := dial(t, start(t, &srv{Handler: h, Backend: backend, MaxQueued: 64 << 10}))
		send(t, c, "go\nX")
		<-resumed
		send(t, c, "YZ")
		got, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		if got = bytes.TrimLeft(got, "0123456789abcdef"); string(got) != "XYZ" {
			t.Errorf("read %q", got)
		}
	})
}

// The call that has hijacked a connection and resumes it itself finds the bytes of the input first
// that the net.Conn has not read, and so does the net.Conn of another Hijack. Slices that the call
// was given before stay valid.
func TestResumeInTheSameCallReadsInputFirst(t *testing.T) {
	noHijack(t)
	backendtest.Each(t, func(t *testing.T, backend string) {
		begun, arrived := make(chan struct{}), make(chan struct{})
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			line, err := c.Line(0)
			if err != nil {
				return err
			}
			if string(line) != "hijack" {
				_, err := c.Write(line)
				return err
			}
			close(begun)
			<-arrived
			for want := byte('A'); want < 'D'; want++ {
				nc, err := c.Hijack()
				if err != nil {
					return err
				}
				nc.SetReadDeadline(time.Now().Add(soon))
				b := make([]byte, 1)
				if _, err := nc.Read(b); err != nil || b[0] != want {
					t.Errorf("the net.Conn has read %q, %v", b, err)
				}
				if err := c.Resume(); err != nil {
					return err
				}
			}
			if n := c.Buffered(); n != 1 {
				t.Errorf("%d bytes in the input", n)
			}
			b, err := c.Next(3)
			if err != nil {
				return err
			}
			if string(line) != "hijack" {
				t.Errorf("a slice has become %q", line)
			}
			_, err = c.Write(b)
			return err
		}}
		c := dial(t, start(t, &srv{Handler: h, Backend: backend}))
		send(t, c, "hijack\nABCD")
		<-begun
		send(t, c, "EF")
		close(arrived)
		expect(t, c, "DEF")
	})
}

// What Read takes after Mark belongs to the message, and comes again with it.
func TestMarkCoversRead(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		calls := make(chan string, 100)
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			for {
				c.Mark()
				var message []byte
				for len(message) < 3 {
					n, err := c.Read(buf[:3-len(message)])
					if err != nil {
						return err
					}
					message = append(message, buf[:n]...)
				}
				b, err := c.Next(5)
				if err != nil {
					calls <- string(message)
					return err
				}
				if _, err := c.Write(append(message, b...)); err != nil {
					return err
				}
			}
		}}
		c := connect(&srv{Handler: h, Backend: backend})
		for range 3 {
			send(t, c, "abc")
			if got := <-calls; got != "abc" {
				t.Errorf("read %q", got)
			}
			send(t, c, "defgh")
			expect(t, c, "abcdefgh")
		}
		send(t, c, "abcdefghABC")
		if got := <-calls; got != "ABC" {
			t.Errorf("read %q", got)
		}
		send(t, c, "DEFGH")
		expect(t, c, "abcdefghABCDEFGH")
	})
}

// A marked message that Read and calls of the input take in turns comes again whole, at any size of
// the buffers.
func TestMarkCoversLargeReads(t *testing.T) {
	for _, size := range []int{1, 600, 0} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
				const length = 150_000
				h := &handler{t: t, data: func(c conn, buf []byte) error {
					c.Mark()
					var message []byte
					for len(message) < length {
						b, err := c.Next(1)
						if err != nil {
							return err
						}
						message = append(message, b...)
						b = make([]byte, min(40_000, length-len(message)))
						if n, err := c.Read(b); err == nil {
							message = append(message, b[:n]...)
						} else if err != sock.ErrWouldBlock {
							return err
						}
					}
					_, err := c.Write(message)
					return err
				}}
				c := connect(&srv{Handler: h, Backend: backend, BufferSize: size})
				for id := range uint64(3) {
					message, got := stream(id, 0, length), make([]byte, length)
					go c.Write(message)
					if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, message) {
						t.Fatalf("message %d is not the same, %v", id, err)
					}
				}
			})
		})
	}
}

// Read may take more than MaxMessage since Mark. Calls of the input then return ErrTooLong until the
// next Mark.
func TestReadBeyondMaxInput(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		const most = 100
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			c.Mark()
			var got []byte
			for len(got) < most+50 {
				n, err := c.Read(buf[:min(30, most+50-len(got))])
				if err != nil {
					return err
				}
				got = append(got, buf[:n]...)
			}
			for name, call := range map[string]func() error{
				"Next":  func() error { _, err := c.Next(1); return err },
				"Peek":  func() error { _, err := c.Peek(1); return err },
				"Until": func() error { _, err := c.Until('x', 0); return err },
			} {
				if err := call(); err != server.ErrTooLong {
					t.Errorf("%s = %v", name, err)
				}
			}
			c.Mark()
			if _, err := c.Next(1); err != sock.ErrWouldBlock {
				t.Errorf("Next after Mark = %v", err)
			}
			_, err := c.Write(got)
			return err
		}}
		c := connect(&srv{Handler: h, Backend: backend, MaxMessage: most})
		message := strings.Repeat("0123456789", (most+50)/10)
		send(t, c, message)
		expect(t, c, message)
	})
}

// Read does not go back to the mark, neither when nothing has arrived nor while the write queue is
// full.
func TestReadKeepsItsPlace(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		full := make(chan struct{})
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			if c.Value.extra == nil {
				c.Mark()
				if _, err := c.Next(3); err != nil {
					return err
				}
				if _, err := c.Read(buf[:3]); err != sock.ErrWouldBlock {
					t.Errorf("Read = %v", err)
				}
				if _, err := fillQueue(c); err != nil {
					return err
				}
				if _, err := c.Read(buf[:3]); err != sock.ErrWouldBlock {
					t.Errorf("Read with a full queue = %v", err)
				}
				c.Value.extra = true
				close(full)
				return nil
			}
			n, err := c.Read(buf)
			if err != nil {
				return err
			}
			c.Write(buf[:n])
			return io.EOF
		}}
		c := dial(t, start(t, &srv{Handler: h, Backend: backend, MaxQueued: 64 << 10}))
		send(t, c, "abc")
		<-full
		send(t, c, "DEF")
		got, err := io.ReadAll(c)
		if got = bytes.TrimLeft(got, "0123456789abcdef"); string(got) != "DEF" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
	})
}

// A part of a marked message that the handler has gone back from was not consumed, so
// ReadTimeout goes on.
func TestMessageTimeoutOfMarkedMessage(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		var calls atomic.Int64
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			defer calls.Add(1)
			c.Mark()
			pieces, err := readParts(c)
			if err == nil {
				t.Errorf("%d pieces", len(pieces))
			}
			return err
		}}
		s := &srv{Handler: h, Backend: backend, ReadTimeout: time.Second, MaxMessage: 3000}
		clock := testclock.Install(t)
		slow := connect(s)
		send(t, slow, "10000\n")
		wait(t, func() bool { return calls.Load() > 0 })
		for n := 0; len(h.told()) == 0; n++ {
			if n == 100 {
				t.Fatal("the timeout does not pass while pieces arrive")
			}
			was := calls.Load()
			slow.Write([]byte("1\nx"))
			wait(t, func() bool { return calls.Load() > was || len(h.told()) > 0 })
			clock.Advance(50 * time.Millisecond)
		}
		h.wantCause(1, server.ErrMessageTimeout)
	})
}
