package debug

import (
	"runtime"
	"strconv"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/observe"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/sock"
)

// A Snapshot is the state of a port, returned by [TakeSnapshot]. Each field is exact, but the fields were not read
// at the same instant.
type Snapshot[K comparable] struct {
	Time        time.Time
	Backend     string
	KernelEdges bool
	Closed      bool
	// Observed is the time since which notifications are recorded by registration. It is zero while the port is not
	// observed ([Observe]).
	Observed time.Time
	Stats    socknotify.Stats
	// Spread holds the counters of each of the port's stripes. The port has several stripes, so that processors do
	// not share counters. A goroutine uses the same stripe as long as it runs on the same processor.
	Spread []Spread
	// Registrations is one page of the port's registrations, ordered by socket number.
	Registrations []RegistrationInfo[K]
	// Next is the socket number at which the next page begins. More reports whether there may be one.
	Next uintptr
	More bool
}

// Spread holds the counters of one stripe of a port.
type Spread struct {
	Inside        int64 // calls in the port now, blocked or not
	Notifications uint64
	Removals      uint64
	PostsDequeued uint64
	Rearms        uint64
	FastEnables   uint64
}

// A RegistrationInfo describes one registration.
type RegistrationInfo[K comparable] struct {
	Socket  uintptr
	Key     K
	Filter  socknotify.Events
	Trigger socknotify.Trigger // level or edge, and one-shot or persistent
	State   State
	// Pending reports that the kernel has reported an event since the registration was last enabled and notified.
	// Enabling it polls the socket again.
	Pending bool
	// ID identifies the registration; the port never reuses it. It is 0 while the port is not observed. The
	// following fields are recorded only while the port is observed.
	ID            uint64
	Notifications uint64
	Last          socknotify.Events // events of the latest notification
	LastTime      time.Time         // time of the latest notification, to the millisecond, or zero
	Since         time.Time         // time of the registration, or zero if it is older than the observation

	record *port.Record
}

// State is the state of a registration.
type State uint8

// The states.
const (
	// StateEnabled means that the registration is enabled.
	StateEnabled State = iota
	// StateFired means that a one-shot registration has notified and has not been enabled again.
	StateFired
	// StateSuppressed is StateFired after further kernel reports arrived; the kernel now reports nothing for the
	// socket until the registration is enabled.
	StateSuppressed
	// StateDisabled means that the registration was disabled by OpDisable.
	StateDisabled
	// StateAccepting means that the socket is a listener from which the port accepts (Port.Accept).
	StateAccepting
	// StatePaused means that accepting failed because there were no descriptors or no memory. The port tries again
	// later.
	StatePaused
	// StateStopped means that accepting was disabled or has failed.
	StateStopped
	// StateOverlapped means that the socket is not registered, but used by overlapped operations (Port.Recv). It
	// has no key. Its filter holds the events that the port waits for.
	StateOverlapped
)

var stateNames = []string{
	"enabled", "fired", "suppressed", "disabled", "accepting", "paused", "stopped", "overlapped"}

// String returns the name of the state.
func (s State) String() string { return nameOf(stateNames, int(s)) }

// MarshalText returns the name of the state.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// nameOf returns the name with a number, or the number if it has none.
func nameOf(names []string, n int) string {
	if n < len(names) {
		return names[n]
	}
	return strconv.Itoa(n)
}

// TakeSnapshot returns the state of a port with one page of at most limit registrations. The page begins at socket
// number from: 0 for the first page, and Next of the previous snapshot for each other page. A registration that
// exists from the first call to the last is in exactly one page. If limit is 0 or less, there are no registrations
// in the snapshot.
//
// TakeSnapshot may be called at any time, also after Close. It makes no system call, and takes no lock that a
// dequeuing call waits for.
func TakeSnapshot[K comparable](p *socknotify.Port[K], from uintptr, limit int) Snapshot[K] {
	in := port.Of(p)
	s := Snapshot[K]{
		Time:        time.Now(),
		Backend:     in.Core.Backend,
		KernelEdges: in.Core.Edges,
		Stats:       p.Stats(),
		Spread:      make([]Spread, port.Stripes),
	}
	for i := range s.Spread {
		s.Spread[i] = Spread(in.Spread(i))
	}
	var infos []observe.Info
	s.Observed, infos, s.Next, s.More, s.Closed = observe.List(in, from, limit)
	for _, i := range infos {
		s.Registrations = append(s.Registrations, RegistrationInfo[K]{
			Socket: i.Handle, Key: port.KeyOf[K](i.Record), Filter: socknotify.Events(i.Filter),
			Trigger: socknotify.Trigger(i.Trigger), State: State(i.State), Pending: i.Pending,
			ID: i.ID, Notifications: i.Notifications, Last: socknotify.Events(i.Last),
			LastTime: timeOf(i.LastTime), Since: timeOf(i.Since), record: i.Record,
		})
	}
	runtime.KeepAlive(p)
	return s
}

// timeOf returns the time of Unix milliseconds, or the zero time for 0.
func timeOf(millis int64) time.Time {
	if millis == 0 {
		return time.Time{}
	}
	return time.UnixMilli(millis)
}

// Observe makes a port record, for each registration, the number of its notifications and the events and time of
// the latest one. [TakeSnapshot] returns the records. Recording ends when stop is called or the port is closed.
//
// A port may have several observers; recording begins with the first and ends with the last. An observed port reads
// the clock once per poll. A port without observers records nothing, at the cost of loading one pointer per poll.
// The records hold no keys. stop may be called more than once.
func Observe[K comparable](p *socknotify.Port[K]) (stop func()) {
	return observe.Start(port.Of(p))
}

// Addresses returns the names of the socket of a registration. It makes a few system calls.
//
// If the registration has ended, Addresses fails with ErrNotRegistered; the error also wraps net.ErrClosed if the
// socket was closed. It never returns the names of another socket that was given the same number. It fails with
// ErrInvalid if r is nil, with ErrClosed if the port is closed, and with errors of the system.
func Addresses[K comparable](p *socknotify.Port[K], r *RegistrationInfo[K]) (sock.Names, error) {
	in := port.Of(p)
	if r == nil {
		if in.Core.Closed.Load() {
			return sock.Names{}, port.ErrClosed
		}
		return sock.Names{}, port.CallError("Addresses", "nil RegistrationInfo")
	}
	names, err := observe.Addresses(in, r.Socket, r.record)
	runtime.KeepAlive(p)
	return names, err
}
