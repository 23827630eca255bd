package socknotify

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/port"
)

// A snapshot is taken while a call has slots locked, and while another has reports in its hands.
func TestSnapshotHoldsNobodyUp(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		defer p.Observe()()
		x, y := newPair(t)
		do(t, p, Enable(x.Handle(), "x", EventIn, oneShot))
		taken := 0
		look := func() {
			if got := p.Snapshot(0, 5); len(got.Registrations) != 1 || got.Registrations[0].Key != "x" {
				t.Errorf("%+v", got.Registrations)
			}
			taken++
		}
		h.before = func(changes []kernel.Change) {
			if len(changes) > 0 {
				look()
			}
		}
		do(t, p, Enable(x.Handle(), "x", EventIn, oneShot)) // its slot is locked during the change
		h.before = nil
		send(t, y)
		h.after = func([]kernel.Ready) { look() }
		next(t, p)
		h.after = nil
		if taken < 2 {
			t.Fatalf("%d snapshots taken", taken)
		}
	})
}

// A report that is held across the end of a registration and the beginning of another counts for neither.
func TestReportIsCountedForItsRegistration(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		defer p.Observe()()
		x, y := newPair(t)
		do(t, p, Enable(x.Handle(), "old", EventIn, oneShot))
		send(t, y)
		held := false
		h.after = func([]kernel.Ready) {
			h.after = nil
			held = true
			do(t, p, Remove[string](x.Handle()))
			do(t, p, Enable(x.Handle(), "new", EventHangup, oneShot))
		}
		var out [4]Notification[string]
		if n, err := p.Wait(out[:], soon); n != 1 || err != nil || out[0].Events != EventRemove {
			t.Fatal(n, err, out[0])
		}
		if got := p.Snapshot(0, 1).Registrations[0]; !held || got.Key != "new" || got.Notifications != 0 || !got.LastTime.IsZero() {
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
		t.Error("observed though nobody does")
	}
	stop := p.Observe()
	tr := p.Trace()
	tr.Close()
	if !observed() {
		t.Error("the end of a trace ends the observation of another")
	}
	if stop(); observed() {
		t.Error("observed after the last observer")
	}
	p.Observe()
	if p.Close(); observed() {
		t.Error("observed after Close")
	}
}

// A notification is at the time at which it was dequeued, to the millisecond.
func TestNotificationsTime(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
		defer p.Observe()()
		tr := p.Trace()
		defer tr.Close()
		x, y := newPair(t)
		send(t, y)
		before := time.Now().Truncate(time.Millisecond)
		do(t, p, Enable(x.Handle(), "x", EventIn, oneShot))
		next(t, p)
		after := time.Now()
		var entries [4]TraceEntry
		n := tr.Read(entries[:])
		if n != 2 {
			t.Fatalf("%d entries", n)
		}
		r := p.Snapshot(0, 1).Registrations[0]
		for what, at := range map[string]time.Time{"since": r.Since, "last": r.LastTime, "registered": entries[0].Time, "notified": entries[1].Time} {
			if at.Before(before) || at.After(after) {
				t.Errorf("%s %v; want from %v to %v", what, at, before, after)
			}
		}
	})
}

// An observer that is never stopped keeps no port, and ends with it.
func TestObservedPortIsDropped(t *testing.T) {
	c := func() *port.Core {
		p, err := New[int]()
		if err != nil {
			t.Fatal(err)
		}
		p.Observe()
		p.Trace()
		return p.port.Core
	}()
	eventually(t, "the port is cleaned up", func() bool {
		runtime.GC()
		c.Watch.Mu.Lock()
		defer c.Watch.Mu.Unlock()
		return c.Watch.Over
	})
}

// Many write, and one reads what is not written over: every entry is whole, and each writer's are in order.
func TestTraceOfManyWriters(t *testing.T) {
	const writers, each = 4, 3 * port.RingSize
	o := &port.Observer{}
	r := new(port.Ring)
	o.Ring.Store(r)
	var wg sync.WaitGroup
	for w := range uint32(writers) {
		wg.Go(func() {
			for i := range uint64(each) {
				o.Trace(1, port.TraceNotified, w, i, port.EventIn, uintptr(i)^uintptr(w))
			}
		})
	}
	tr := &Trace{&port.TraceReader{Ring: r}}
	var last [writers]uint64
	buf := make([]TraceEntry, 100)
	read := 0
	take := func() int {
		n := tr.Read(buf)
		for _, e := range buf[:n] {
			if e.Data != uintptr(e.ID)^e.Socket || e.Kind != TraceNotified || e.Events != EventIn || e.Time.UnixMilli() != 1 {
				t.Fatalf("torn: %+v", e)
			}
			if e.ID < last[e.Socket] {
				t.Fatalf("writer %d: %d after %d", e.Socket, e.ID, last[e.Socket])
			}
			last[e.Socket] = e.ID
		}
		read += n
		return n
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for writing := true; writing; {
		select {
		case <-done:
			writing = false
		default:
			take()
		}
	}
	eventually(t, "all is read or lost", func() bool {
		take()
		return tr.reader.Next == r.Head.Load()
	})
	if uint64(read)+tr.Lost() != writers*each || read == 0 {
		t.Errorf("%d read, %d lost, of %d", read, tr.Lost(), writers*each)
	}
}

// An entry that its writer gave up does not hold the reader up for ever.
func TestTraceGivenUp(t *testing.T) {
	r := new(port.Ring)
	r.Add(1<<16, 1, 1, 0)
	r.Head.Add(1) // begun, and never written
	r.Add(1<<16, 3, 3, 0)
	tr := &Trace{&port.TraceReader{Ring: r}}
	buf := make([]TraceEntry, 4)
	if n := tr.Read(buf); n != 1 || buf[0].Socket != 1 {
		t.Fatal(n, buf[0])
	}
	tr.reader.Stuck = tr.reader.Stuck.Add(-port.GivenUp)
	if n := tr.Read(buf); n != 1 || buf[0].Socket != 3 || tr.Lost() != 1 {
		t.Fatal(n, buf[0], tr.Lost())
	}
	if !tr.reader.Stuck.IsZero() || tr.Read(buf) != 0 {
		t.Fatal("there is more")
	}
}

func TestTraceNames(t *testing.T) {
	for k, want := range map[TraceKind]string{TraceNotified: "notified", TracePosted: "posted", 77: "77"} {
		if got, err := k.MarshalText(); string(got) != want || err != nil {
			t.Errorf("%d: %s, %v", k, got, err)
		}
	}
	for s, want := range map[State]string{StateEnabled: "enabled", StateStopped: "stopped", 77: "77"} {
		if got, err := s.MarshalText(); string(got) != want || err != nil {
			t.Errorf("%d: %s, %v", s, got, err)
		}
	}
}

// A peer that keeps sending to a fired registration: pending first, muted then.
func TestSnapshotTellsPendingAndMuted(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
		x, y := newPair(t)
		do(t, p, Enable(x.Handle(), "x", EventIn, oneShot))
		send(t, y)
		next(t, p)
		if !p.KernelEdges() {
			return // the report has silenced the handle
		}
		for _, want := range []State{StateFired, StateMuted} {
			send(t, y)
			none(t, p)
			if got := p.Snapshot(0, 1).Registrations[0]; got.State != want || !got.Pending {
				t.Fatalf("%+v; want %v", got, want)
			}
		}
		do(t, p, Disable[string](x.Handle()))
		if got := p.Snapshot(0, 1).Registrations[0]; got.State != StateDisabled || got.Pending {
			t.Fatalf("%+v", got)
		}
	})
}

func TestAcceptorOutOfDescriptorsIsPaused(t *testing.T) {
	r := &port.Record{Work: &port.Work{Accept: &port.Acceptor{Pause: time.Second}}}
	r.Work.Accept.Paused.Store(true)
	if got := r.State(port.WRegistered | port.WEnabled | port.WAccept); got != port.StatePaused {
		t.Error(got)
	}
}
