// Package traps tests what a server does when a function of the program panics or calls
// runtime.Goexit.
package traps

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/handles"
)

// A Trap ends one call of a hook: it panics, or calls runtime.Goexit.
type Trap struct {
	Hook   string
	Goexit bool

	n      int64 // the call that ends
	calls  atomic.Int64
	sprung atomic.Bool
	mu     sync.Mutex
	log    bytes.Buffer
}

// Text is what a Trap panics with.
const Text = "a trap of a test"

// Call is called by each hook.
func (p *Trap) Call(hook string) {
	if hook != p.Hook || p.calls.Add(1) != p.n {
		return
	}
	p.sprung.Store(true)
	if p.Goexit {
		runtime.Goexit()
	}
	panic(Text)
}

// Write is for the log of the server.
func (p *Trap) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// Logger returns a logger whose lines Check looks for.
func (p *Trap) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(p, nil)) }

func (p *Trap) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// Each runs a test for each hook, with a panic and with runtime.Goexit in its first call, in its
// second and so on, until the test has not sprung the trap.
func Each(t *testing.T, hooks []string, test func(t *testing.T, p *Trap)) {
	for _, hook := range hooks {
		for _, way := range []string{"panic", "Goexit"} {
			more := true
			for n := int64(1); more && n <= 20; n++ {
				t.Run(fmt.Sprintf("%s/%s/call %d", hook, way, n), func(t *testing.T) {
					handles.NoneLeft(t, "socket:")
					p := &Trap{Hook: hook, Goexit: way == "Goexit", n: n}
					test(t, p)
					if more = p.sprung.Load(); !more && n == 1 {
						t.Error("the hook was not called")
					}
				})
			}
		}
	}
}

// A Server is what Check looks at.
type Server struct {
	Conns    func() int
	Panics   func() uint64
	Shutdown func(context.Context) error
	// NetHTTP means that net/http recovers from the panic, and counts nothing.
	NetHTTP bool
}

// Check verifies that nothing is left of the connections of a server, whose clients have gone or wait
// for their end, and that it ends.
func (p *Trap) Check(t *testing.T, s Server) {
	t.Helper()
	await.Until(t, "no connection is left", func() bool { return s.Conns() == 0 })
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if p.Goexit || !p.sprung.Load() {
		if n := s.Panics(); n != 0 {
			t.Errorf("%d panics were counted, want none", n)
		}
		return
	}
	await.Until(t, "the panic is logged", func() bool { return strings.Contains(p.logged(), Text) })
	if text := p.logged(); !strings.Contains(text, "(*Trap).Call") || strings.Count(text, Text) > 1 {
		t.Errorf("want one line with the stack, got %s", text)
	}
	if n := s.Panics(); n != 1 && !s.NetHTTP {
		t.Errorf("%d panics were counted, want 1", n)
	}
}

// Rest reads until the peer ends the connection, if the trap was sprung, and closes it. So a
// connection that is left open for good fails the test.
func (p *Trap) Rest(t *testing.T, conn net.Conn) {
	t.Helper()
	defer conn.Close()
	if !p.sprung.Load() {
		return
	}
	conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
		t.Error("the connection was left open")
	}
}

// Sprung reports whether the trap has ended a call.
func (p *Trap) Sprung() bool { return p.sprung.Load() }

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}
