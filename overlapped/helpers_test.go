package overlapped

import (
	"errors"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backendtest"
	"github.com/socknotify/socknotify/internal/leaks"
	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/sock"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const (
	oneShot    = socknotify.TriggerLevel | socknotify.TriggerOneShot
	persistent = socknotify.TriggerLevel | socknotify.TriggerPersistent
	// soon is how long a test waits for what must come before it gives up.
	soon = time.Minute
)

// A fataler is a testing.TB or a *rapid.T.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

// newPort returns a port on an open backend.
func newPort[K comparable](tb fataler, poller backend.Poller, name string) *socknotify.Port[K] {
	tb.Helper()
	p, err := socknotify.New[K](backendtest.On(poller, name))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// onEach runs a test on every backend, with hooks to set.
func onEach(t *testing.T, f func(t *testing.T, p *socknotify.Port[string], h *backendtest.Hooked)) {
	onEachOf(t, f)
}

// onEachOf is onEach with another type of keys.
func onEachOf[K comparable](t *testing.T, f func(t *testing.T, p *socknotify.Port[K], h *backendtest.Hooked)) {
	for _, b := range backendtest.List(t) {
		t.Run(b.Name, func(t *testing.T) {
			k, err := b.Open()
			if err != nil {
				t.Fatal(err)
			}
			h := &backendtest.Hooked{Poller: k}
			p := newPort[K](t, h, b.Name)
			t.Cleanup(func() { p.Close() })
			port.Of(p).Core.Watching.Store(true) // as if it had had sockets
			f(t, p, h)
		})
	}
}

func newPair(t testing.TB) (x, y *sock.Socket) {
	t.Helper()
	x, y, err := backendtest.Pair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close(); y.Close() })
	return x, y
}

// do processes one entry and fails on its Result.
func do[K comparable](t *testing.T, p *socknotify.Port[K], r socknotify.Registration[K]) {
	t.Helper()
	regs := []socknotify.Registration[K]{r}
	if _, err := p.Process(regs, nil, 0); err != nil {
		t.Fatal(err)
	}
	if regs[0].Result != nil {
		t.Fatal(regs[0].Result)
	}
}

func send(t *testing.T, s *sock.Socket) {
	t.Helper()
	if _, err := s.Send([]byte("x")); err != nil {
		t.Fatal(err)
	}
}

// drain receives until the socket would block.
func drain(t *testing.T, s *sock.Socket) {
	t.Helper()
	var buf [64]byte
	for {
		if _, err := s.Recv(buf[:]); errors.Is(err, sock.ErrWouldBlock) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// next waits for one notification.
func next[K comparable](t *testing.T, p *socknotify.Port[K]) socknotify.Notification[K] {
	t.Helper()
	var out [1]socknotify.Notification[K]
	if n, err := p.Process(nil, out[:], soon); n != 1 || err != nil {
		t.Fatalf("Process = %d, %v; want a notification", n, err)
	}
	return out[0]
}

// none checks that nothing can be dequeued now.
func none[K comparable](t *testing.T, p *socknotify.Port[K]) {
	t.Helper()
	var out [1]socknotify.Notification[K]
	if n, err := p.Process(nil, out[:], 0); n != 0 || err != socknotify.ErrTimeout {
		t.Fatalf("Process = %d, %v, %+v; want nothing", n, err, out[0])
	}
}

// eventually waits for a state that other goroutines bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	await.Until(t, what, ok)
}

// result waits for the completion of an operation and returns its result.
func result[K comparable](t *testing.T, p *socknotify.Port[K]) (int, error) {
	t.Helper()
	nt := next(t, p)
	return Of(&nt).Result()
}

// asleep waits until n calls on the port sleep.
func asleep[K comparable](t *testing.T, p *socknotify.Port[K], n int) {
	t.Helper()
	eventually(t, "sleeping calls", func() bool { return p.Stats().Waiting == n })
}

// refuseAll is a Hooked.Refuse that fails every change.
func refuseAll(*backend.Change) error { return syscall.ENOSPC }

// nextHasNumber skips a test whose next socket must get the number of the one that was closed last. The conformance
// suite has cases that bring a number back on every system.
func nextHasNumber(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows gives out numbers in an order of its own")
	}
}
