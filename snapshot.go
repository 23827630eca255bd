package socknotify

import (
	"runtime"
	"strconv"
	"time"

	"github.com/socknotify/socknotify/internal/port"
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

	record *port.Record
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
		Backend:     p.port.Core.Backend,
		KernelEdges: p.port.Core.Edges,
		Stats:       p.Stats(),
		Spread:      make([]Spread, port.Stripes),
		Next:        from,
	}
	for i := range s.Spread {
		s.Spread[i] = Spread(p.port.Spread(i))
	}
	var infos []port.Info
	s.Observed, infos, s.Next, s.More, s.Closed = p.port.List(from, limit)
	for i := range infos {
		s.Registrations = append(s.Registrations, registrationInfo[K](&infos[i]))
	}
	runtime.KeepAlive(p)
	return s
}

func registrationInfo[K comparable](i *port.Info) RegistrationInfo[K] {
	r := RegistrationInfo[K]{
		Socket: i.Handle, Key: keyOf[K](i.Record), Filter: Events(i.Filter), Trigger: Trigger(i.Trigger), State: State(i.State),
		Pending: i.Pending, ID: i.Id, Notifications: i.Notifications, Last: Events(i.Last), record: i.Record,
	}
	if i.LastTime != 0 {
		r.LastTime = time.UnixMilli(i.LastTime)
	}
	if i.Since != 0 {
		r.Since = time.UnixMilli(i.Since)
	}
	return r
}
