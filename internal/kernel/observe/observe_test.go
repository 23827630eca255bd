package observe_test

import (
	"runtime"
	"testing"
	"time"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/observe"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/porttest"
)

// A list is made while a call has slots locked, and while another has reports that it has not delivered.
func TestSnapshotBlocksNoCall(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		defer observe.Start(port.Of(p))()
		x, y := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot))
		taken := 0
		observe := func() {
			if _, got, _, _, _ := observe.List(port.Of(p), 0, 5); len(got) != 1 || port.KeyOf[string](got[0].Record) != "x" {
				t.Errorf("%+v", got)
			}
			taken++
		}
		h.Before = func(changes []backend.Change) {
			if len(changes) > 0 {
				observe()
			}
		}
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot)) // its slot is locked during the change
		h.Before = nil
		porttest.Send(t, y)
		h.After = func([]backend.Ready) { observe() }
		porttest.Next(t, p)
		h.After = nil
		if taken < 2 {
			t.Fatalf("%d lists made", taken)
		}
	})
}

// A report that is held across the end of a registration and the beginning of another counts for neither.
func TestReportIsCountedForItsRegistration(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		defer observe.Start(port.Of(p))()
		x, y := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "old", EventIn, porttest.OneShot))
		porttest.Send(t, y)
		held := false
		h.After = func([]backend.Ready) {
			h.After = nil
			held = true
			porttest.Do(t, p, porttest.RemoveHandle[string](x.Handle()))
			porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "new", EventHangup, porttest.OneShot))
		}
		var out [4]Notification[string]
		if n, err := p.Process(nil, out[:], porttest.Soon); n != 1 || err != nil || out[0].Events != EventRemove {
			t.Fatal(n, err, out[0])
		}
		if got := sole(t, p); !held || port.KeyOf[string](got.Record) != "new" || got.Notifications != 0 || got.LastTime != 0 {
			t.Fatalf("held %t, %+v", held, got)
		}
	})
}

// What is recorded ends with the last observer, and with the port.
func TestObserverEnds(t *testing.T) {
	p, err := New[int]()
	if err != nil {
		t.Fatal(err)
	}
	observed := func() bool { return port.Of(p).Core.Observer.Load() != nil }
	if observed() {
		t.Error("observed without an observer")
	}
	stop := observe.Start(port.Of(p))
	tr := observe.StartTrace(port.Of(p))
	tr.Stop()
	if !observed() {
		t.Error("the end of a trace ends the observation of another")
	}
	if stop(); observed() {
		t.Error("observed after the last observer")
	}
	observe.Start(port.Of(p))
	if p.Close(); observed() {
		t.Error("observed after Close")
	}
}

// An observer that is never stopped keeps no port, and ends with it.
func TestObservedPortIsDropped(t *testing.T) {
	c := func() *port.Core {
		p, err := New[int]()
		if err != nil {
			t.Fatal(err)
		}
		observe.Start(port.Of(p))
		observe.StartTrace(port.Of(p))
		return port.Of(p).Core
	}()
	await.Until(t, "the port is cleaned up", func() bool {
		runtime.GC()
		return c.Observer.Load() == nil
	})
}

// A notification has the time at which it was dequeued, to the millisecond.
func TestNotificationsTime(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		defer observe.Start(port.Of(p))()
		tr := observe.StartTrace(port.Of(p))
		defer tr.Stop()
		x, y := porttest.Pair(t)
		porttest.Send(t, y)
		before := time.Now().UnixMilli()
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot))
		porttest.Next(t, p)
		after := time.Now().UnixMilli()
		registered, _ := tr.Read()
		notified, ok := tr.Read()
		if e, more := tr.Read(); !ok || more {
			t.Fatalf("not two entries: %+v, %+v, %+v", registered, notified, e)
		}
		r := sole(t, p)
		for what, at := range map[string]int64{"since": r.Since, "last": r.LastTime, "registered": registered.At, "notified": notified.At} {
			if at < before || at > after {
				t.Errorf("%s %d; want from %d to %d", what, at, before, after)
			}
		}
	})
}

// The peer keeps sending to a fired registration, which is first pending and then suppressed.
func TestSnapshotOfPendingAndSuppressed(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		x, y := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot))
		porttest.Send(t, y)
		porttest.Next(t, p)
		if !port.Of(p).Core.OwnEdges {
			return // the report has suppressed the handle
		}
		porttest.Send(t, y)
		porttest.None(t, p)
		if got := sole(t, p); got.State != observe.StateFired || !got.Pending {
			t.Fatalf("%+v; want it fired and pending", got)
		}
		porttest.Send(t, y)
		porttest.None(t, p)
		if got := sole(t, p); got.State != observe.StateSuppressed || !got.Pending {
			t.Fatalf("%+v; want it suppressed and pending", got)
		}
		porttest.Do(t, p, porttest.DisableHandle[string](x.Handle()))
		if got := sole(t, p); got.State != observe.StateDisabled || got.Pending {
			t.Fatalf("%+v; want it disabled and not pending", got)
		}
	})
}

// sole returns the only registration of a port.
func sole(t *testing.T, p *Port[string]) observe.Info {
	t.Helper()
	_, all, _, _, _ := observe.List(port.Of(p), 0, 10)
	if len(all) != 1 {
		t.Fatalf("%d registrations; want 1", len(all))
	}
	return all[0]
}
