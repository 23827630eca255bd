package server_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/backendtest"
	"github.com/socknotify/socknotify/server"
)

// fill writes until bytes are queued.
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

// Write returns ErrQueueFull with the number of bytes taken, and Writable is called when there is room again.
func TestWritable(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		const size = 16 << 20
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
func TestConcurrentWrites(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
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

// A peer that never reads delays only itself: its queue is bounded, and other connections are served.
func TestPeerNeverReads(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
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
