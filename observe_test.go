package socknotify

import (
	"runtime"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/port"
)

// A list is made while a call has slots locked, and while another has reports that it has not delivered.
func TestSnapshotBlocksNoCall(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		defer p.port.Observe()()
		x, y := newPair(t)
		do(t, p, enableHandle(x.Handle(), "x", EventIn, oneShot))
		taken := 0
		observe := func() {
			if _, got, _, _, _ := p.port.List(0, 5); len(got) != 1 || port.KeyOf[string](got[0].Record) != "x" {
				t.Errorf("%+v", got)
			}
			taken++
		}
		h.Before = func(changes []backend.Change) {
			if len(changes) > 0 {
				observe()
			}
		}
		do(t, p, enableHandle(x.Handle(), "x", EventIn, oneShot)) // its slot is locked during the change
		h.Before = nil
		send(t, y)
		h.After = func([]backend.Ready) { observe() }
		next(t, p)
		h.After = nil
		if taken < 2 {
			t.Fatalf("%d lists made", taken)
		}
	})
}

// A report that is held across the end of a registration and the beginning of another counts for neither.
func TestReportIsCountedForItsRegistration(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		defer p.port.Observe()()
		x, y := newPair(t)
		do(t, p, enableHandle(x.Handle(), "old", EventIn, oneShot))
		send(t, y)
		held := false
		h.After = func([]backend.Ready) {
			h.After = nil
			held = true
			do(t, p, removeHandle[string](x.Handle()))
			do(t, p, enableHandle(x.Handle(), "new", EventHangup, oneShot))
		}
		var out [4]Notification[string]
		if n, err := p.Process(nil, out[:], soon); n != 1 || err != nil || out[0].Events != EventRemove {
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
	observed := func() bool { return p.port.Core.Observer.Load() != nil }
	if observed() {
		t.Error("observed without an observer")
	}
	stop := p.port.Observe()
	tr := p.port.StartTrace()
	tr.Stop()
	if !observed() {
		t.Error("the end of a trace ends the observation of another")
	}
	if stop(); observed() {
		t.Error("observed after the last observer")
	}
	p.port.Observe()
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
		p.port.Observe()
		p.port.StartTrace()
		return p.port.Core
	}()
	eventually(t, "the port is cleaned up", func() bool {
		runtime.GC()
		c.Watch.Mu.Lock()
		defer c.Watch.Mu.Unlock()
		return c.Watch.Over
	})
}

// A notification has the time at which it was dequeued, to the millisecond.
func TestNotificationsTime(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
		defer p.port.Observe()()
		tr := p.port.StartTrace()
		defer tr.Stop()
		x, y := newPair(t)
		send(t, y)
		before := time.Now().UnixMilli()
		do(t, p, enableHandle(x.Handle(), "x", EventIn, oneShot))
		next(t, p)
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
	onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
		x, y := newPair(t)
		do(t, p, enableHandle(x.Handle(), "x", EventIn, oneShot))
		send(t, y)
		next(t, p)
		if !p.port.Core.OwnEdges {
			return // the report has suppressed the handle
		}
		send(t, y)
		none(t, p)
		if got := sole(t, p); got.State != port.StateFired || !got.Pending {
			t.Fatalf("%+v; want it fired and pending", got)
		}
		send(t, y)
		none(t, p)
		if got := sole(t, p); got.State != port.StateMuted || !got.Pending {
			t.Fatalf("%+v; want it suppressed and pending", got)
		}
		do(t, p, disableHandle[string](x.Handle()))
		if got := sole(t, p); got.State != port.StateDisabled || got.Pending {
			t.Fatalf("%+v; want it disabled and not pending", got)
		}
	})
}

// sole returns the only registration of a port.
func sole(t *testing.T, p *Port[string]) port.Info {
	t.Helper()
	_, all, _, _, _ := p.port.List(0, 10)
	if len(all) != 1 {
		t.Fatalf("%d registrations; want 1", len(all))
	}
	return all[0]
}
