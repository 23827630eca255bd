package socknotify

import (
	"runtime"
	"strconv"
	"sync/atomic"
	"time"
)

// A Snapshot is the state of a port, for those who look at it from outside (X7). It is the caller's; the
// port keeps nothing of it. Each part is exact on its own; together they are not of one instant.
type Snapshot[K comparable] struct {
	Time        time.Time
	Backend     string
	KernelEdges bool
	Closed      bool
	// Observed is since when notifications are recorded by registration; zero: they are not (Port.Observe).
	Observed time.Time
	Stats    Stats
	// Spread is how calls and their work spread over the places that the port counts them in, so that
	// processors share none. A goroutine keeps to one as long as it stays on its processor.
	Spread []Spread
	// Registrations are some of the port's, by rising socket number.
	Registrations []RegistrationInfo[K]
	// Next is where the following ones begin, and More that there may be some.
	Next Socket
	More bool
}

// Spread is the part of [Stats] that is counted in one place.
type Spread struct {
	Inside        int64 // calls inside the port now, asleep or not
	Notifications uint64
	Removals      uint64
	PostsDequeued uint64
	Rearms        uint64
	RearmsSaved   uint64
}

// A RegistrationInfo is what a port knows of one registration.
type RegistrationInfo[K comparable] struct {
	Socket  Socket
	Key     K
	Filter  Events
	Trigger Trigger // level or edge, and one-shot or persistent
	State   State
	// Pending says that the kernel has reported something since the registration is not enabled. Enabling
	// asks it again.
	Pending bool
	// ID is never that of another registration of the port; 0 where nobody observes. The following are
	// what was recorded since then.
	ID            uint64
	Notifications uint64
	Last          Events    // the latest notification's
	LastTime      time.Time // to the millisecond; zero: there was none
	Since         time.Time // when it was made; zero: before anybody observed

	record *record
}

// State is how a registration stands.
type State uint8

// The states.
const (
	// StateEnabled may notify.
	StateEnabled State = iota
	// StateFired is a one-shot registration that has notified: it is in a handler's hands until it is
	// enabled again.
	StateFired
	// StateMuted is a fired one whose kernel has been told to be silent, because more kept coming.
	StateMuted
	// StateDisabled was disabled by OpDisable.
	StateDisabled
	// StateAccepting is a listener that Accept was called for.
	StateAccepting
	// StatePaused is such a listener that is out of descriptors or memory, and is tried again in a while.
	StatePaused
	// StateStopped is such a listener whose accepting was disabled, or has failed.
	StateStopped
	// StateOverlapped is no registration, but a socket that operations wait for, or have waited for
	// (Port.Recv). It has no key, and its filter is what the kernel watches for them.
	StateOverlapped
)

var stateNames = [...]string{"enabled", "fired", "muted", "disabled", "accepting", "paused", "stopped", "overlapped"}

// String names the state.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return strconv.Itoa(int(s))
}

// MarshalText is String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Snapshot returns the port's state, with at most limit registrations of sockets from a number on: 0, and
// then the Next of the snapshot before. A registration that lasts from the first page to the last is in
// exactly one. With limit 0 or less there are none.
//
// It may be called at any time, also after Close. No lock is taken that a call that dequeues would wait
// for, and no system call is made.
func (p *Port[K]) Snapshot(from Socket, limit int) Snapshot[K] {
	s := Snapshot[K]{
		Time:        time.Now(),
		Backend:     p.core.backend,
		KernelEdges: p.core.edges,
		Stats:       p.Stats(),
		Spread:      make([]Spread, stripes),
		Next:        from,
	}
	for i := range s.Spread {
		t := &p.core.stripes[i]
		s.Spread[i] = Spread{
			t.inside.Load(), t.notifications.Load(), t.removals.Load(), t.dequeuedPosts.Load(),
			t.rearms.Load(), t.saved.Load(),
		}
	}
	st := &p.core.stripes[0]
	if !st.enter(p.core) { // the slots may be dropped
		s.Closed = true
		return s
	}
	defer st.leave(p.core)
	o := p.core.observer.Load()
	if o != nil {
		s.Observed = o.since
	}
	if limit > 0 {
		s.list(p.table.all(), o, limit)
	}
	runtime.KeepAlive(p)
	return s
}

// list adds registrations from s.Next on.
func (s *Snapshot[K]) list(pages []atomic.Pointer[page], o *observer, limit int) {
	for at := s.Next; at/pageSize < Socket(len(pages)); {
		pg := pages[at/pageSize].Load()
		if pg == nil {
			at = (at/pageSize + 1) * pageSize
			continue
		}
		info, ok := infoOf[K](&pg[at%pageSize], o, uint32(at))
		at++
		if !ok {
			continue
		}
		s.Registrations = append(s.Registrations, info)
		s.Next = at
		if len(s.Registrations) == limit {
			s.More = true
			return
		}
	}
}

// infoOf tells what a slot has registered. What it reads besides the word belongs to the registration of the
// word if the epoch was the same before and after.
func infoOf[K comparable](s *slot, o *observer, index uint32) (r RegistrationInfo[K], ok bool) {
	for {
		was := s.word.Load()
		if was&wRegistered == 0 {
			return r, false
		}
		var rec *seen
		if o != nil {
			rec = o.of(index)
		}
		reg := s.reg.Load()
		if is := s.word.Load(); reg == nil || !sameEpoch(was, is) || (reg.work != nil) != (was&wWorked != 0) {
			continue
		}
		r = RegistrationInfo[K]{
			Socket: Socket(index), Key: keyOf[K](reg), Filter: wordFilter(was), Trigger: wordTrigger(was),
			State: reg.state(was), Pending: was&wEnabled == 0 && was&wPending != 0, record: reg,
		}
		if rec != nil {
			r.ID, r.Notifications = rec.id, rec.count.Load()
			if last := rec.last.Load(); last != 0 {
				r.Last, r.LastTime = Events(last&0xff), time.UnixMilli(int64(last>>8))
			}
			if rec.since != 0 {
				r.Since = time.UnixMilli(rec.since)
			}
		}
		return r, true
	}
}

func wordTrigger(word uint64) Trigger {
	t := TriggerLevel | TriggerPersistent
	if word&wEdge != 0 {
		t ^= TriggerLevel | TriggerEdge
	}
	if word&wOneShot != 0 {
		t ^= TriggerPersistent | TriggerOneShot
	}
	return t
}

// state reads a word. One that OpDisable wrote is muted and not pending; one that note muted was pending.
func (r *record) state(word uint64) State {
	enabled := word&wEnabled != 0
	switch {
	case word&wOverlapped != 0:
		return StateOverlapped
	case r.work != nil && !enabled:
		return StateStopped
	case r.work != nil && r.work.accept.paused.Load():
		return StatePaused
	case r.work != nil:
		return StateAccepting
	case enabled:
		return StateEnabled
	case word&wMuted != 0 && word&wPending == 0:
		return StateDisabled
	case word&wMuted != 0:
		return StateMuted
	default:
		return StateFired
	}
}
