package server_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/backendtest"
	"github.com/socknotify/socknotify/server"
)

// A mark ends with the handler's call that has set it, also if a goroutine has used the input after Pause and before that
// call has returned. Bytes that were consumed since the mark do not come again.
func TestMarkEndsAtResume(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		returned := make(chan struct{})
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			for {
				if c.State.extra == nil && c.Buffered() == 0 {
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
				c.State.extra = true
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
		send(t, first, "ABC")
		expect(t, first, "ABC")
		send(t, second, "X") // is answered by the same worker, when the first call has ended
		expect(t, second, "X")
		close(returned)
		for _, text := range []string{"D", "EF", "G"} {
			send(t, first, text)
			expect(t, first, text)
		}
	})
}

// A call of Writable that comes before Data after Resume finds the bytes of the input first that a hijacker has not read.
func TestWritableAfterHijackReadsInputFirst(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		read := func(c conn) error {
			b := make([]byte, 1)
			n, err := c.Read(b)
			c.State.got = append(c.State.got, b[:n]...)
			if len(c.State.got) < len("XYZ") {
				return err
			}
			c.Write(c.State.got)
			return io.EOF
		}
		resumed := make(chan struct{})
		piece := make([]byte, 32<<10)
		h := &writable{handler: &handler{t: t}, writable: read}
		h.data = func(c conn, buf []byte) error {
			if c.State.extra != nil {
				return read(c)
			}
			c.State.extra = true
			if _, err := c.Line(0); err != nil {
				return err
			}
			for {
				if _, err := c.Write(piece); err == server.ErrQueueFull {
					break
				} else if err != nil {
					return err
				}
			}
			if _, err := c.Hijack(); err != nil {
				return err
			}
			defer close(resumed)
			return c.Resume()
		}
		c := dial(t, start(t, &srv{Handler: h, Backend: backend, WriteQueue: 64 << 10}))
		send(t, c, "go\nX")
		<-resumed
		send(t, c, "YZ")
		got, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		if got = bytes.TrimLeft(got, "\x00"); string(got) != "XYZ" {
			t.Errorf("read %q", got)
		}
	})
}

// The call that has hijacked a connection and resumes it itself finds the bytes of the input first that the net.Conn has not
// read, and so does the net.Conn of another Hijack. Slices that the call was given before stay valid.
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
