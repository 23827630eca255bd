package docs_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/server"
)

type frames struct{}

func (*frames) Open(c *server.Conn[peer]) error         { return nil }
func (*frames) Close(c *server.Conn[peer], cause error) {}

type peer struct{}

func (*frames) Data(c *server.Conn[peer], buf []byte) error {
	for {
		head, err := c.Peek(2)
		if err != nil {
			return err // sock.ErrWouldBlock: the rest will come
		}
		frame, err := c.Next(2 + int(binary.BigEndian.Uint16(head)))
		if err != nil {
			return err
		}
		if _, err := c.Write(answer(frame[2:])); err != nil {
			return err
		}
	}
}

// answer is a frame with the bytes in the other order.
func answer(text []byte) []byte {
	out := binary.BigEndian.AppendUint16(nil, uint16(len(text)))
	out = append(out, text...)
	slices.Reverse(out[2:])
	return out
}

type slow struct{ frames }

func (*slow) Data(c *server.Conn[peer], buf []byte) error {
	n, err := c.Read(buf)
	if n == 0 {
		return err
	}
	request := bytes.Clone(buf[:n])
	c.Pause() // no Data until Resume
	go func() {
		c.Write(lookUp(request))
		c.Resume()
	}()
	return nil
}

// lookUp takes its time.
func lookUp(request []byte) []byte {
	time.Sleep(time.Millisecond) // as a database may
	return bytes.ToUpper(request)
}

// serving serves on loopback with a handler.
func serving[S any](t *testing.T, h server.Handler[S], backend string) net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server.Server[S]{Handler: h, Backend: backend}
	ended := make(chan error, 1)
	addr := l.Addr().String()
	go func() { ended <- s.Serve(l) }()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(5 * time.Minute))
	t.Cleanup(func() {
		c.Close()
		if err := s.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != server.ErrServerClosed {
			t.Error(err)
		}
	})
	return c
}

func expect(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("%q, %v; want %q", got, err, want)
	}
}

func TestFromGnet(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		c := serving(t, &frames{}, backend)
		for _, part := range []string{"\x00\x03abc\x00\x02d", "e", "\x00", "\x01f\x00\x00"} {
			if _, err := io.WriteString(c, part); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, c, "\x00\x03cba\x00\x02ed\x00\x01f\x00\x00")
	})
}

func TestFromGnetSlow(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		c := serving(t, &slow{}, backend)
		for range 3 {
			io.WriteString(c, "question")
			expect(t, c, "QUESTION")
		}
	})
}
