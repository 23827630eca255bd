package port_test

import (
	"sync/atomic"
	"testing"
	"time"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/overlapped"
)

// leadHelper makes the helper of a port lead: an operation waits, and no call does. Hooks of the
// backend must be set before.
func leadHelper(t *testing.T, p *Port[string]) {
	t.Helper()
	port.Of(p).Core.HelpAfter = time.Microsecond
	idle, _ := porttest.Pair(t)
	op := new(overlapped.Op[string])
	if err := overlapped.Recv(p, idle, "idle", make([]byte, 1), op); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the helper leads", port.Of(p).Helping)
}

// Only operations that wait start the helper's timer.
func TestRegistrationsNeedNoHelper(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		x, y := porttest.Pair(t)
		for range 3 {
			porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "k", EventIn, porttest.OneShot))
			porttest.None(t, p)
			porttest.Send(t, y)
			porttest.Next(t, p)
			porttest.Drain(t, x)
		}
		waited := make(chan error)
		go func() {
			_, err := p.Process(nil, make([]Notification[string], 1), -1)
			waited <- err
		}()
		porttest.Waiting(t, p, 1)
		p.Post("k", 0)
		if err := <-waited; err != nil {
			t.Fatal(err)
		}
		porttest.Do(t, p, porttest.RemoveHandle[string](x.Handle()))
		porttest.Next(t, p)
		var op overlapped.Op[string]
		if err := overlapped.Send(p, x, "k", []byte("x"), &op); err != nil { // it has room
			t.Fatal(err)
		}
		porttest.Next(t, p)
		if port.Of(p).NeededHelper() {
			t.Error("the timer has been started")
		}
	})
}

// The helper is no waiter: it is not counted, and is never chosen for work that it does not do.
func TestHelperIsNotChosen(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		polls, release := make(chan bool), make(chan bool)
		var once atomic.Bool
		h.Before = func(changes []backend.Change) {
			if len(changes) == 0 && once.CompareAndSwap(false, true) {
				polls <- true
				<-release
			}
		}
		leadHelper(t, p)
		await.Receive(t, "the helper's first poll", polls)
		core := port.Of(p)
		if n := p.Stats().Waiting; n != 0 {
			t.Errorf("%d calls wait", n)
		}
		w := core.Begin()
		if core.Join(w) {
			t.Error("two leaders")
		}
		core.Enqueue()
		core.Quit(w) // it would wake another waiter for the queue
		core.End(w)
		if chosen, _ := core.Chosen(nil); chosen {
			t.Error("the helper is chosen")
		}
		close(release)
		if nt := porttest.Next(t, p); nt.Kind() != KindPosted {
			t.Errorf("%+v", nt)
		}
	})
}

// The helper has taken a report from the kernel, and others act on the registration before it puts
// the report off.
func TestReportHeldByHelper(t *testing.T) {
	const in = EventIn
	for _, c := range []struct {
		name string
		act  func(t *testing.T, p *Port[string], number uintptr, closeIt func())
		want []Events // of the next polls
	}{
		{"nothing", func(*testing.T, *Port[string], uintptr, func()) {}, []Events{in, 0}},
		{"enabled", func(t *testing.T, p *Port[string], number uintptr, _ func()) {
			porttest.Do(t, p, porttest.EnableHandle(number, "k", in, porttest.OneShot))
		}, []Events{in, 0}},
		{"disabled", func(t *testing.T, p *Port[string], number uintptr, _ func()) {
			porttest.Do(t, p, porttest.DisableHandle[string](number))
		}, []Events{0}},
		{"removed", func(t *testing.T, p *Port[string], number uintptr, _ func()) {
			porttest.Do(t, p, porttest.RemoveHandle[string](number))
		}, []Events{EventRemove, 0}},
		{"closed", func(_ *testing.T, _ *Port[string], _ uintptr, closeIt func()) {
			closeIt()
		}, []Events{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
				held, release := make(chan bool), make(chan bool)
				var hold atomic.Bool
				h.After = func([]backend.Ready) {
					if hold.CompareAndSwap(true, false) {
						held <- true
						<-release
					}
				}
				x, y := porttest.Pair(t)
				porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "k", in, porttest.OneShot))
				leadHelper(t, p)
				hold.Store(true)
				porttest.Send(t, y)
				await.Receive(t, "the helper has a report", held)
				c.act(t, p, x.Handle(), func() { x.Close() })
				close(release)
				for i, want := range c.want {
					var out [1]Notification[string]
					n, err := p.Process(nil, out[:], 0)
					if n != 0 && err != nil || out[0].Events != want || (n == 1) != (want != 0) {
						t.Fatalf("poll %d: %d, %v, %+v; want %v", i, n, err, out[0], want)
					}
				}
			})
		})
	}
}
