package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/server"
)

// fillQueue writes until the queue of a connection whose peer does not read is full, and returns the number of bytes. If
// only a little was queued, the system could take it later, when it has moved what it holds to the peer's side.
func fillQueue(c conn) (total int, err error) {
	b := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
	for err == nil {
		var n int
		n, err = c.Write(b[total%16:])
		total += n
	}
	if err == server.ErrQueueFull {
		err = nil
	}
	return total, err
}

// fill is fillQueue for a connection that may be closed, or refused room, by others.
func fill(t testing.TB, c conn) (total int) {
	t.Helper()
	total, err := fillQueue(c)
	if err != nil && err != server.ErrOverload && !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	return total
}

// fillStream writes a stream in pieces until one is refused because the queue is full.
func fillStream(c conn, piece int) (total int, err error) {
	for err == nil {
		var n int
		n, err = c.Write(stream(1, total, piece))
		if total += n; err == server.ErrQueueFull && n == 0 {
			return total, nil
		}
		if err == nil && n != piece {
			err = io.ErrShortWrite
		}
	}
	return total, err
}

// Write returns ErrQueueFull if MaxQueued bytes are queued, and Writable is called when there is room again.
func TestWritable(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		const size = 16 << 20
		pattern := make([]byte, size)
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range pattern {
			pattern[i] = byte(rng.Uint32())
		}
		var refused atomic.Int64
		more := func(c conn) error {
			at := c.Value.extra.(int)
			for at < size {
				n, err := c.Write(pattern[at:min(at+50_000, size)])
				at += n
				c.Value.extra = at
				if q := c.Queued(); q >= 150_000 {
					t.Errorf("%d bytes are queued", q)
				}
				switch {
				case err == server.ErrQueueFull:
					if refused.Add(1); n != 0 {
						t.Errorf("%d bytes of a refused write were taken", n)
					}
					return nil
				case err != nil:
					return err
				}
			}
			return c.Close()
		}
		h := &writable{handler: &handler{t: t, open: func(c conn) error {
			c.Value.extra = 0
			return more(c)
		}}, writable: more}
		s := &srv{Handler: h, Backend: backend, MaxQueued: 100_000}
		c := dial(t, start(t, s))
		wait(t, func() bool { return refused.Load() > 0 }) // a client that reads as fast as the handler writes leaves room
		expectAll(t, c, pattern)
		h.wantCause(1, nil)
	})
}

// An answer of any size is taken whole, and Data is called again when it was sent, so a handler need not look at the queue.
// The memory is bounded by MaxQueued and one answer.
func TestLargeAnswers(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		const queue = 100_000
		size := 8 << 20 / fewer()
		answer := stream(1, 0, size)
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			for {
				line, err := c.Line(0)
				if err != nil {
					return err
				}
				if q := c.Queued(); q > queue {
					t.Errorf("%d bytes are queued when a request is read", q)
				}
				if n, err := c.Writev([][]byte{line, answer[:size/2], nil, answer[size/2:]}); err != nil || n != len(line)+size {
					t.Errorf("Writev = %d, %v", n, err)
				}
			}
		}}
		c := connect(&srv{Handler: h, Backend: backend, MaxQueued: queue})
		const n = 5
		send(t, c, strings.Repeat("line\n", n)) // before anything is read
		for range n {
			expect(t, c, "line")
			expectStream(t, c, 1, size)
		}
	})
}

// Writes of one call that together exceed a small MaxQueued are sent, in order, by Write and by Writev.
func TestGatherBeyondQueue(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		const size, writes = 8 << 10, 5
		data := func(c conn, buf []byte) error {
			n, err := c.Read(buf[:1])
			if n == 0 {
				return err
			}
			for i := range writes {
				b := stream(3, i*size, size)
				var n int
				var err error
				if buf[0] == 'w' {
					n, err = c.Write(b)
				} else {
					n, err = c.Writev([][]byte{b[:100], nil, b[100:]})
				}
				if n != size || err != nil {
					t.Errorf("write %d = %d, %v", i, n, err)
				}
			}
			return nil
		}
		c := connect(&srv{Handler: &handler{t: t, data: data}, Backend: backend, MaxQueued: 16 << 10})
		for _, how := range "wvwv" {
			send(t, c, string(how))
			expectStream(t, c, 3, writes*size)
		}
	})
}

// What is written in one call of Data arrives in order, whatever the sizes: small writes are gathered, large ones are not.
func TestGather(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		sizes := []int{1, 0, 16 << 10, 16<<10 + 1, 3, 100_000, 15_000, 15_000, 15_000, 15_000, 15_000, 7}
		data := func(c conn, buf []byte) error {
			n, err := c.Read(buf[:1])
			if n == 0 {
				return err
			}
			at := 0
			for _, size := range sizes {
				b := stream(2, at, size)
				if n, err := c.Write(b); n != size || err != nil {
					t.Errorf("Write = %d, %v", n, err)
				}
				clear(b) // it is not kept
				at += size
			}
			switch buf[0] {
			case 'c':
				return c.Close()
			case 'e':
				return errors.New("an error")
			case 'p':
				panic("on purpose")
			}
			return nil
		}
		for _, end := range "-cep" {
			c := connect(&srv{Handler: &handler{t: t, data: data}, Backend: backend, MaxQueued: 10 << 20})
			total := 0
			for _, size := range sizes {
				total += size
			}
			for range 3 {
				send(t, c, "-")
				expectStream(t, c, 2, total)
			}
			if end != '-' {
				send(t, c, string(end))
				got := make([]byte, total)
				if n, err := io.ReadFull(c, got); end == 'c' && err != nil || !bytes.Equal(got[:n], stream(2, 0, n)) {
					t.Fatal("wrong bytes", err)
				}
			}
		}
	})
}

// A peer receives what was written before an error or a panic of the handler, and what a handler that does not return has
// written.
func TestGatherEnds(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		release := make(chan struct{})
		data := func(c conn, buf []byte) error {
			n, err := c.Read(buf[:1])
			if n == 0 {
				return err
			}
			c.Write([]byte("last "))
			c.Write([]byte("words"))
			switch buf[0] {
			case 'e':
				return errors.New("an error")
			case 'p':
				panic("on purpose")
			case 'b':
				<-release
			}
			return nil
		}
		defer close(release)
		for _, how := range []string{"e", "p", "b"} {
			c := connect(&srv{Handler: &handler{t: t, data: data}, Backend: backend})
			send(t, c, how)
			expect(t, c, "last words")
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
			b := append(c.Value.got, buf[:n]...)
			whole := len(b) - len(b)%length
			_, err = c.Write(b[:whole])
			c.Value.got = append([]byte(nil), b[whole:]...)
			return err
		}}
		s := &srv{Handler: h, Backend: backend, MaxQueued: 64 << 20}
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
	t.Parallel() // it waits
	backendtest.Each(t, func(t *testing.T, backend string) {
		h := &handler{t: t}
		s := &srv{Handler: h, Backend: backend, MaxQueued: 1 << 20}
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
		if q := s.Stats().QueuedBytes; q > 1<<20 {
			t.Errorf("%d bytes are queued", q)
		}
		good := dial(t, addr)
		for range 100 {
			echoes(t, good, "hello")
		}
	})
}
