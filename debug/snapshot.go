package debug

import (
	"runtime"
	"strconv"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/sock"
)

// A Snapshot is the state of a port as [TakeSnapshot] found it. It belongs to the caller; the port keeps no part of
// it. Each part is exact on its own, but the parts were not read at one instant.
type Snapshot[K comparable] struct {
	Time        time.Time
	Backend     string
	KernelEdges bool
	Closed      bool
	// Observed is the time since which notifications are recorded by registration. It is zero while the port is not
	// observed ([Observe]).
	Observed time.Time
	Stats    socknotify.Stats
	// Spread has the counts of each place that the port counts calls in. It has several, so that processors
	// share none. A goroutine keeps to one as long as it stays on its processor.
	Spread []Spread
	// Registrations are some of the port's, by rising socket number.
	Registrations []RegistrationInfo[K]
	// Next is where the following ones begin, and More reports that there may be some.
	Next uintptr
	More bool
}

// A RegistrationInfo describes one registration.
type RegistrationInfo[K comparable] struct {
	Socket  uintptr
	Key     K
	Filter  socknotify.Events
	Trigger socknotify.Trigger // level or edge, and one-shot or persistent
	State   State
	// Pending reports that the kernel has reported something since the registration is not enabled. Enabling
	// asks it again.
	Pending bool
	// ID is never that of another registration of the port. It is 0 while the port is not observed. The following
	// fields have what was recorded since the observation began.
	ID            uint64
	Notifications uint64
	Last          socknotify.Events // the latest notification's
	LastTime      time.Time         // to the millisecond; zero: there was none
	Since         time.Time         // when it was made; zero: before the observation began

	record *port.Record
}

// State is the state of a registration.
type State uint8

// The states.
const (
	// StateEnabled may notify.
	StateEnabled State = iota
	// StateFired is a one-shot registration that has notified. It does not notify before it is enabled again.
	StateFired
	// StateMuted is a fired one that the kernel has been told not to report any more, because more kept coming.
	StateMuted
	// StateDisabled was disabled by OpDisable.
	StateDisabled
	// StateAccepting is a listener that Accept was called for.
	StateAccepting
	// StatePaused is such a listener for which descriptors or memory ran out. The port tries it again later.
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

// TakeSnapshot returns the state of a port, with at most limit registrations of sockets from a number on. The first
// call has 0 for the number, and each later one the Next of the snapshot before. A registration that lasts from the
// first page to the last is in exactly one. With limit 0 or less there are none.
//
// It may be called at any time, also after Close. It takes no lock that a call that dequeues would wait for, and makes
// no system call.
func TakeSnapshot[K comparable](p *socknotify.Port[K], from uintptr, limit int) Snapshot[K] {
	return takeSnapshot(p, port.Of(p), from, limit)
}

func takeSnapshot[K comparable](p *socknotify.Port[K], in *port.Port, from uintptr, limit int) Snapshot[K] {
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
	var infos []port.Info
	s.Observed, infos, s.Next, s.More, s.Closed = in.List(from, limit)
	for i := range infos {
		s.Registrations = append(s.Registrations, registrationInfo[K](&infos[i]))
	}
	runtime.KeepAlive(p)
	return s
}

func registrationInfo[K comparable](i *port.Info) RegistrationInfo[K] {
	r := RegistrationInfo[K]{
		Socket: i.Handle, Key: port.KeyOf[K](i.Record), Filter: socknotify.Events(i.Filter),
		Trigger: socknotify.Trigger(i.Trigger), State: State(i.State), Pending: i.Pending,
		ID: i.Id, Notifications: i.Notifications, Last: socknotify.Events(i.Last), record: i.Record,
	}
	if i.LastTime != 0 {
		r.LastTime = time.UnixMilli(i.LastTime)
	}
	if i.Since != 0 {
		r.Since = time.UnixMilli(i.Since)
	}
	return r
}

// Observe has a port record, until stop is called or the port is closed, how often each registration notifies, the
// events of its latest notification, and when. [TakeSnapshot] returns the records. The clock is read once each time
// the kernel is asked.
//
// A port may be observed several times at once; counts begin with the first and end with the last. A port that is not
// observed records nothing, and pays one load of a pointer each time the kernel is asked. The records hold no key. stop
// may be called more than once.
func Observe[K comparable](p *socknotify.Port[K]) (stop func()) {
	return port.Of(p).Observe()
}

// Addresses asks the system for the names of the socket of a registration. It takes a few system calls.
//
// The error is ErrNotRegistered, with net.ErrClosed where the socket was closed, if the registration is
// over: the names of another socket that has the number by now are never returned. It is ErrInvalid for a nil
// RegistrationInfo, and ErrClosed, or the system's, otherwise.
func Addresses[K comparable](p *socknotify.Port[K], r *RegistrationInfo[K]) (sock.Names, error) {
	return addresses(port.Of(p), r)
}

func addresses[K comparable](in *port.Port, r *RegistrationInfo[K]) (sock.Names, error) {
	if r == nil {
		if in.Core.Closed.Load() {
			return sock.Names{}, port.ErrClosed
		}
		return sock.Names{}, port.CallError("Addresses", "a nil RegistrationInfo")
	}
	names, err := in.Addresses(r.Socket, r.record)
	runtime.KeepAlive(in)
	return names, err
}
