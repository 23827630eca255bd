package overlapped

import (
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/system"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/internal/test/porttest"
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

// must ends the test if there is an error.
func must(tb fataler, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// newPort returns a port on an open backend. Its helper stays away, unless the test changes that,
// because most tests carry out operations at moments of their own.
func newPort[K comparable](tb fataler, poller backend.Poller, name string) *socknotify.Port[K] {
	tb.Helper()
	p, err := socknotify.New[K](backendtest.On(poller, name))
	if err != nil {
		tb.Fatal(err)
	}
	port.Of(p).Core.HelpAfter = time.Hour
	return p
}

// openPort returns a port on a backend.
func openPort[K comparable](t *testing.T, b system.Backend) *socknotify.Port[K] {
	t.Helper()
	poller, err := b.Open()
	must(t, err)
	return newPort[K](t, poller, b.Name)
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
			porttest.HadSocket(t, p)
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

var (
	newTCP        = porttest.TCPPair
	send          = porttest.Send
	drain         = porttest.Drain
	eventually    = await.Until
	nextHasNumber = porttest.NextHasNumber
)

// next waits for one notification.
func next[K comparable](t *testing.T, p *socknotify.Port[K]) socknotify.Notification[K] {
	t.Helper()
	return porttest.Next(t, p)
}

// none checks that nothing can be dequeued now.
func none[K comparable](t *testing.T, p *socknotify.Port[K]) {
	t.Helper()
	porttest.None(t, p)
}

// result waits for the completion of an operation and returns its result.
func result[K comparable](t *testing.T, p *socknotify.Port[K]) (int, error) {
	t.Helper()
	nt := next(t, p)
	return Of(&nt).Result()
}

// refuseAll is a Hooked.Refuse that fails every change.
func refuseAll(*backend.Change) error { return syscall.ENOSPC }
