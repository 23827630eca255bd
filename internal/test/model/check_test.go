//go:build unix || windows

package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/socknotify/socknotify"
)

func itoa(n int) string { return strconv.Itoa(n) }

// check checks one notification that a call returned which began at a time, and tells which
// registration it was of.
func (w *world) check(ps *portState, n notification, begin int) *reg {
	w.tick()
	switch {
	case n.Kind() == socknotify.KindPosted:
		w.checkPost(ps, n)
	case n.Events.Has(socknotify.EventRemove):
		if n.Events != socknotify.EventRemove || n.Data != 0 {
			w.fail("EventRemove of key %d does not come alone: %v, data %d (G5)", n.Key, n.Events, n.Data)
		}
		if ps.removes[n.Key] == 0 {
			w.fail("EventRemove of key %d was not due, or came twice (G4)", n.Key)
		}
		ps.removes[n.Key]--
	default:
		why := "the port knows no other such key"
		var of *reg
		for _, r := range ps.byKey[n.Key] {
			switch no := w.forbidden(r, n, begin); {
			case no != "":
				why += fmt.Sprintf("; in a call begun at %d, %s: %v, %s", begin, no, r, r.history())
			case of == nil:
				of = r
				w.charge(r, begin)
				w.note(r, n)
			default:
				_, _, once := r.during(begin)
				of.doubts = append(of.doubts, doubt{r, once})
				w.note(r, n)
			}
		}
		if of == nil {
			w.fail("notification %v of key %d must not come: %s", n.Events, n.Key, why)
		}
		return of
	}
	return nil
}

func (w *world) checkPost(ps *portState, n notification) {
	seq := int(n.Data)
	switch {
	case n.Key != postKey || n.Events != 0:
		w.fail("post %d came with key %d and events %v (Q1)", seq, n.Key, n.Events)
	case seq >= ps.posted:
		w.fail("post %d was never made (Q1)", seq)
	case ps.got[seq]:
		w.fail("post %d came twice (Q1)", seq)
	case w.waiters == nil && seq != ps.next:
		w.fail("post %d came before post %d (Q1)", seq, ps.next)
	default:
		ps.got[seq] = true
		for ps.next < ps.posted && ps.got[ps.next] {
			ps.next++
		}
	}
}

const postKey = -1

// note remembers a notification that was, or may have been, this registration's: two registrations
// of one key can be told apart only by what they may send.
func (w *world) note(r *reg, n notification) {
	r.fired++
	r.notified = w.now()
	r.since = r.notified
	r.pending &^= n.Events
	r.fresh |= n.Events
	r.settled = true
}

// charge counts a one-shot notification. Where it may have been an older registration's, that one is
// charged, because fewer calls can still return its notifications.
func (w *world) charge(r *reg, begin int) {
	if _, _, once := r.during(begin); once {
		r.budget--
	}
}

// during reports whether a call that began at a time may return notifications of the registration, with
// which events, and whether only one per enable.
func (r *reg) during(begin int) (filter events, some, once bool) {
	once = true
	for _, s := range r.spans {
		if s.to < 0 || s.to > begin {
			filter, some, once = filter|s.filter, true, once && s.oneShot
		}
	}
	return filter, some, once
}

// sampled is the earliest time whose conditions a call that began at a time may return. A kernel that queues
// a report when a condition begins to hold does not take it back when that ends, so that a program that
// receives without having been told is told afterwards (E9).
func (w *world) sampled(r *reg, begin int) int {
	if !strings.HasPrefix(w.backend, "psn") {
		return begin
	}
	at := begin
	for _, s := range r.spans {
		if s.to < 0 || s.to > begin {
			at = min(at, s.from)
		}
	}
	return at
}

// A doubt is a younger registration of the same key that may have sent what an older one was charged for.
type doubt struct {
	reg  *reg
	once bool // it would have been charged
}

// reclaim takes back what the registration was charged for a notification that may as well have been a
// younger one's, and charges that one.
func (r *reg) reclaim() bool {
	for i, d := range r.doubts {
		if d.once && d.reg.budget == 0 && !d.reg.reclaim() {
			continue
		}
		if d.once {
			d.reg.budget--
		}
		r.doubts = slices.Delete(r.doubts, i, i+1)
		r.budget++
		return true
	}
	return false
}

// history says when a registration could notify, and of what.
func (r *reg) history() string {
	s := fmt.Sprintf("budget %d, spans", r.budget)
	for _, p := range r.spans {
		s += fmt.Sprintf(" %v..%v %v one-shot=%v", p.from, p.to, p.filter, p.oneShot)
	}
	return s
}

// forbidden tells why a registration must not have sent a notification, or "".
func (w *world) forbidden(r *reg, n notification, begin int) string {
	e := n.Events
	filter, some, once := r.during(begin)
	f := r.file
	switch {
	case e == 0 || n.Data != 0:
		return fmt.Sprintf("no events, or data %d", n.Data)
	case !some:
		return "the registration is over, or disabled (G3, G4)"
	case e&^(filter|socknotify.EventErr) != 0:
		return "bits outside the filter (E9)"
	case once && r.budget == 0 && !r.reclaim():
		return "a second notification of a one-shot registration (T3)"
	case e.Has(socknotify.EventHangup) && !f.kind.stream():
		return "a hang-up of what has no connection (E4)"
	case f.open() < 0 || r.gone:
		return ""
	}
	held := f.since(w.sampled(r, begin))
	if w.waiters != nil && f.peer == nil {
		held |= socknotify.EventErr // a send may bring the error about, and the next one clear it
	}
	if e&^held != 0 {
		return fmt.Sprintf("spurious %v (E9)", e&^held)
	}
	if w.waiters != nil {
		return ""
	}
	m := f.mask()
	switch {
	case e.Has(socknotify.EventHangup) && r.filter&socknotify.EventIn != 0 && !e.Has(socknotify.EventIn):
		return "a hang-up without IN (E3)"
	case f.dead(m) && e.Has(socknotify.EventOut):
		return "OUT of a dead stream (E5)"
	case f.dead(m) && r.filter&socknotify.EventHangup != 0 && !e.Has(socknotify.EventHangup):
		return "an abort without HANGUP (E5)"
	}
	return ""
}
