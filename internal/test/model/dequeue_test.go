//go:build unix || windows

package model

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
)

// waitFor says how long a call may wait.
type waitFor int

const (
	now    waitFor = iota
	due            // as long as patience if something must come, else not at all
	brief          // a moment
	moment = time.Millisecond
)

// patience is how long what must come may take. Once something has failed it is short, so that the
// failing sequence is made smaller in reasonable time.
func patience() time.Duration {
	if shrinking.Load() {
		return 200 * time.Millisecond
	}
	return time.Minute
}

var shrinking atomic.Bool

// dequeue calls Process and checks what it returns.
func (w *world) dequeue(ps *portState, entries []socknotify.Registration[int], out []notification, wait waitFor) int {
	var timeout time.Duration
	want, must := "", false
	if w.waiters == nil && len(out) > 0 {
		// What the entries cause counts as well: the model has applied them.
		want = w.owed(ps)
		if wait == due && want != "" {
			timeout, must = patience(), true
		}
		if wait == brief {
			timeout = moment
		}
	}
	begin := time.Now()
	n, err := ps.p.Process(entries, out, timeout)
	took := time.Since(begin)
	w.fenced()
	switch {
	case len(out) == 0:
		if n != 0 || err != nil {
			w.fail("Process without entries: %d, %v", n, err)
		}
	case n == 0 && !errors.Is(err, socknotify.ErrTimeout):
		w.fail("Process: 0, %v", err)
	case n > 0 && err != nil || n > len(out):
		w.fail("Process: %d of %d, %v", n, len(out), err)
	case n == 0 && took < timeout:
		w.fail("Process timed out early: %v of %v (C4)", took, timeout)
	case n > 0 && must && took >= timeout: // a call polls once more before it gives up
		w.fail("no wake-up within %v, but there must have been: %s", timeout, want)
	case n == 0 && must:
		w.fail("nothing came within %v, but must have: %s", timeout, want)
	}
	w.checkCall(ps, out[:n], w.now())
	return n
}

// dequeueAll lets several goroutines dequeue at once, without waiting.
func (w *world) dequeueAll(ps *portState, goroutines, size int) {
	outs := make([][]notification, goroutines)
	start := make(chan struct{})
	var done sync.WaitGroup
	begin := w.now()
	for i := range outs {
		done.Add(1)
		go func() {
			defer done.Done()
			out := make([]notification, size)
			<-start
			n, _ := ps.p.Process(nil, out, 0)
			outs[i] = out[:n]
		}()
	}
	close(start)
	done.Wait()
	// Each post is the next of some call's.
	for progress := true; progress; {
		progress = false
		for i, out := range outs {
			for len(out) > 0 && (out[0].Kind() != socknotify.KindPosted || w.waiters != nil || int(out[0].Data) == ps.next) {
				w.check(ps, out[0], begin)
				out, progress = out[1:], true
			}
			outs[i] = out
		}
	}
	for _, out := range outs {
		for _, n := range out {
			w.fail("post %d came, with %d still to come (Q1)", n.Data, ps.next)
		}
	}
}

// checkCall checks what one call has returned, in order.
func (w *world) checkCall(ps *portState, out []notification, begin int) {
	seen := make(map[*reg]bool)
	last := -1
	for _, n := range out {
		r := w.check(ps, n, begin)
		if n.Kind() == socknotify.KindPosted {
			if int(n.Data) <= last {
				w.fail("one call returned post %d after post %d (Q1)", n.Data, last)
			}
			last = int(n.Data)
		}
		if r != nil && w.waiters == nil && !r.edge() && !r.oneShot() {
			if seen[r] {
				w.fail("one call returned two notifications of a persistent level (T1): %v", r)
			}
			seen[r] = true
		}
	}
}

// owed names something that must come, or is "".
func (w *world) owed(ps *portState) string {
	for key, n := range ps.removes {
		if n > 0 {
			return "EventRemove of key " + itoa(key)
		}
	}
	if ps.next < ps.posted {
		return "post " + itoa(ps.next)
	}
	for _, r := range ps.regs {
		if e := w.due(ps, r); e != 0 && !(w.settling && r.settled) {
			return e.String() + " of " + r.String()
		}
	}
	return ""
}

// due is what must be notified to a registration now.
func (w *world) due(ps *portState, r *reg) events {
	if r.gone || !r.enabled || r.oneShot() && r.fired > 0 {
		return 0
	}
	e := r.file.holds(r.file.mask()) & (r.filter | socknotify.EventErr)
	if r.edge() {
		if !ps.edges {
			// What was notified, or held at the enable of a strict edge, must be enabled again first (T2), unless the socket
			// reports that it was drained.
			reported := r.silent
			if r.fired > 0 {
				reported = ^events(0)
			}
			e &= r.drainedSince() | ^reported
		}
		e &= r.pending
	}
	return e
}

// drainedSince are the events that a socket which vouches for itself goes on with by itself (T2).
func (r *reg) drainedSince() (e events) {
	if f := r.file; r.tied && f.fd >= 0 {
		if f.recvBlocked && f.recvAt > r.since {
			e |= socknotify.EventIn
		}
		if f.sendBlocked && f.sendAt > r.since {
			e |= socknotify.EventOut
		}
	}
	return e
}

// refresh looks for conditions that have begun to hold.
func (w *world) refresh() {
	for _, f := range w.files {
		if f.open() >= 0 {
			f.look(w.now())
		}
	}
	for _, ps := range w.ports {
		for _, r := range ps.regs {
			if r.gone {
				continue
			}
			m := r.file.mask()
			e := r.file.standing(m)
			if r.enabled && r.edge() && !(r.oneShot() && r.fired > 0) {
				// What arrived on its own may have been notified before it was seen here.
				r.pending |= e &^ r.held &^ r.fresh & (r.filter | socknotify.EventErr)
			}
			r.pending &= r.file.holds(m) // what has passed before anybody looked need not come
			// A hang-up that was notified before the peer closed, as after a reset, does not begin again.
			r.held = e | (r.held|r.fresh)&r.file.may(m)&socknotify.EventHangup
			r.fresh = 0
		}
	}
}
