package server_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
)

// A machine may be busy with something else for any time. So a long test does not give up by the clock, but when nothing
// has moved for many of its own turns.
const (
	turn  = 50 * time.Millisecond
	turns = 1200 // at least a minute
)

// A watch ends a context when nothing was counted for long, after it has printed the state.
type watch struct {
	moved atomic.Uint64
	ctx   context.Context
	end   context.CancelFunc
	done  chan struct{}
}

func newWatch(t testing.TB, state func() string) *watch {
	w := &watch{done: make(chan struct{})}
	w.ctx, w.end = context.WithCancel(context.Background())
	go func() {
		defer close(w.done)
		last, still := uint64(0), 0
		ticker := time.NewTicker(turn)
		defer ticker.Stop()
		for {
			select {
			case <-w.ctx.Done():
				return
			case <-ticker.C:
			}
			now := w.moved.Load()
			if still++; now != last {
				last, still = now, 0
			}
			if still == turns {
				t.Errorf("nothing has moved for %d turns\n%s\n%s", turns, state(), stacks())
				w.end()
				return
			}
		}
	}()
	t.Cleanup(w.stop)
	return w
}

func (w *watch) stop() {
	w.end()
	<-w.done
}

// until waits for a condition, as long as something moves.
func (w *watch) until(cond func() bool) bool {
	for !cond() {
		if w.ctx.Err() != nil {
			return false
		}
		await.Pause(time.Millisecond)
	}
	return true
}

func stacks() string {
	buf := make([]byte, 4<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// A moving is a client's connection whose transfers are counted by a watch, and which is closed with it.
type moving struct {
	net.Conn
	w           *watch
	wrote, read atomic.Int64
	phase       atomic.Value // what the client is at, for the state
	unwatch     func() bool
	id          uint64
	target      target
}

func (w *watch) dial(id uint64, to target) (*moving, error) {
	var d net.Dialer
	c, err := d.DialContext(w.ctx, to.network, to.addr)
	if err != nil {
		return nil, err
	}
	w.moved.Add(1)
	m := &moving{Conn: c, w: w, id: id, target: to}
	m.unwatch = context.AfterFunc(w.ctx, func() { c.Close() })
	return m, nil
}

func (m *moving) at(phase string) { m.phase.Store(phase) }

func (m *moving) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	m.read.Add(int64(n))
	m.w.moved.Add(1)
	return n, err
}

// Write writes and counts in pieces, because a long Write would be one move otherwise.
func (m *moving) Write(b []byte) (n int, err error) {
	for rest := b; ; rest = b[n:] {
		k, err := m.Conn.Write(rest[:min(len(rest), 1<<16)])
		n += k
		m.wrote.Add(int64(k))
		m.w.moved.Add(1)
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

func (m *moving) CloseWrite() error {
	m.w.moved.Add(1)
	return m.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

func (m *moving) Close() error {
	m.unwatch()
	m.w.moved.Add(1)
	return m.Conn.Close()
}

func (m *moving) String() string {
	return fmt.Sprintf("client %x to %s %s tls %v from %v: %v; below it wrote %d, read %d", m.id, m.target.network,
		m.target.addr, m.target.tls, m.Conn.LocalAddr(), m.phase.Load(), m.wrote.Load(), m.read.Load())
}

// A fleet is a list of all clients, for printing the state.
type fleet struct {
	mu  sync.Mutex
	all []*moving
}

func (f *fleet) add(m *moving) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, m)
}

func (f *fleet) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	for _, m := range f.all {
		if m.phase.Load() != over {
			fmt.Fprintln(&b, m)
		}
	}
	return b.String()
}

const over = "over"
