package psn_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/psn"
	testawait "github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/fakepsn"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// seeds is the number of random Quirks that the tests run with, besides the zero Quirks.
const seeds = 16

// onEach runs a test on the plain fake and on seeded ones.
func onEach(t *testing.T, f func(t *testing.T, sys *psn.System)) {
	on := func(name string, q fakepsn.Quirks) {
		t.Run(name, func(t *testing.T) {
			sys := fakepsn.New(q).System()
			if err := psn.Probe(sys); err != nil {
				t.Fatal(err)
			}
			f(t, sys)
			if t.Failed() {
				t.Logf("%+v", q)
			}
		})
	}
	on("plain", fakepsn.Quirks{})
	for seed := range uint64(seeds) {
		on(fmt.Sprint(seed), fakepsn.Seeded(seed))
	}
}

func open(t *testing.T, sys *psn.System) backend.Poller {
	t.Helper()
	k, err := psn.NewOn(sys)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

func pair(t *testing.T) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}

const both = backend.In | backend.PeerClosed

func change(k backend.Poller, action backend.Action, s int, token uint64, interest backend.Mask) backend.Status {
	c := []backend.Change{{Handle: uintptr(s), Token: token, Interest: interest, Action: action}}
	k.Poll(c, nil)
	return c[0].Status
}

func must(t *testing.T, k backend.Poller, action backend.Action, s int, token uint64, interest backend.Mask) {
	t.Helper()
	if got := change(k, action, s, token, interest); got != backend.Done {
		t.Fatalf("action %d: status %d; want Done", action, got)
	}
}

func harvest(k backend.Poller) []backend.Ready {
	ready := make([]backend.Ready, 8)
	return ready[:k.Poll(nil, ready)]
}

func none(t *testing.T, k backend.Poller) {
	t.Helper()
	if r := harvest(k); len(r) != 0 {
		t.Fatalf("reports %+v; want none", r)
	}
}

// want harvests one report, and waits for it as a real kernel might make it late.
func want(t *testing.T, k backend.Poller, token uint64, mask backend.Mask) {
	t.Helper()
	var r []backend.Ready
	testawait.Until(t, fmt.Sprintf("a report, of token %d with mask %#x", token, mask), func() bool {
		r = harvest(k)
		return len(r) > 0
	})
	if len(r) != 1 || r[0].Token != token || r[0].Mask != mask {
		t.Fatalf("reports %+v; want token %d, mask %#x", r, token, mask)
	}
}

func write(t *testing.T, s int) {
	t.Helper()
	if _, err := unix.Write(s, []byte("x")); err != nil {
		t.Fatal(err)
	}
}

func drain(s int) {
	var b [64]byte
	for {
		if n, _ := unix.Read(s, b[:]); n <= 0 {
			return
		}
	}
}

// queued lets the fake queue a packet by itself, before a call does so. Tests hold if it does not.
func queued() { testawait.Pause(2 * time.Millisecond) }

// park runs Park and fails if it does not return.
func park(t *testing.T, k backend.Poller, until time.Time, poll func() bool) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- k.Park(until, poll) }()
	defer func() {
		if t.Failed() {
			k.Wake()
		}
	}()
	if err := testawait.Receive(t, "Park returns", done); err != nil {
		t.Fatal(err)
	}
}

var noDeadline time.Time
