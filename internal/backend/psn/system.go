package psn

import (
	"unsafe"

	"github.com/socknotify/socknotify/internal/backend"
)

// A System is what the backend needs of the operating system.
type System struct {
	// Process is ProcessSocketNotifications: it applies the registrations, each with its own Result, then
	// dequeues into entries, waiting up to timeout milliseconds. It returns how many entries it filled,
	// and the native return value. An empty slice is a NULL array.
	Process func(port uintptr, registrations []Registration, timeout uint32, entries []Entry) (n int, code uint32)

	OpenPort  func() (port uintptr, err error)
	ClosePort func(port uintptr) error
	// Post queues a packet with a key and no event (PostQueuedCompletionStatus).
	Post func(port, key uintptr) error

	// Describe and Look are those of backend.Poller.
	Describe func(handle uintptr) (backend.Kind, error)
	Look     func(handle uintptr) backend.Mask

	// Pin makes sure that a socket lives until Unpin, and Same tells whether a handle still names it.
	Pin   func(handle uintptr) (pin uintptr, err error)
	Same  func(handle, pin uintptr) bool
	Unpin func(pin uintptr)

	// Datagram opens a socket for the probe, that can be sent on. If send is not nil it sends to itself.
	Datagram func() (handle uintptr, send func() error, release func(), err error)
	// Errno makes an error of a code.
	Errno func(code uint32) error

	// Snapshots says that a packet has what held when it was queued. Otherwise what begins to hold until it
	// is dequeued comes with it, as the reference has it. Probe finds out.
	Snapshots bool

	pollers pollerSet
}

// A Registration is a SOCK_NOTIFY_REGISTRATION.
type Registration struct {
	Socket  uintptr
	Key     uintptr
	Filter  uint16
	Op      uint8
	Trigger uint8
	Result  uint32
}

// An Entry is an OVERLAPPED_ENTRY.
type Entry struct {
	Key      uintptr
	_        uintptr // reserved for sockets
	_        uintptr
	Transfer uint32 // the events
}

// The layouts are Windows' on every system that tests run on: 24 and 32 bytes, or 16 and 16.
const word = unsafe.Sizeof(uintptr(0))

var (
	_ = [1]int{}[unsafe.Sizeof(Registration{})-(2*word+8)]
	_ = [1]int{}[unsafe.Offsetof(Registration{}.Key)-word]
	_ = [1]int{}[unsafe.Offsetof(Registration{}.Filter)-2*word]
	_ = [1]int{}[unsafe.Offsetof(Registration{}.Op)-(2*word+2)]
	_ = [1]int{}[unsafe.Offsetof(Registration{}.Trigger)-(2*word+3)]
	_ = [1]int{}[unsafe.Offsetof(Registration{}.Result)-(2*word+4)]
	_ = [1]int{}[unsafe.Sizeof(Entry{})-4*word]
	_ = [1]int{}[unsafe.Offsetof(Entry{}.Transfer)-3*word]
)

// Native constants.
const (
	eventIn     = 0x01
	eventOut    = 0x02
	eventHangup = 0x04
	eventErr    = 0x40
	eventRemove = 0x80

	opEnable  = 1
	opDisable = 2
	opRemove  = 4

	triggerOneShot = 0x01
	triggerLevel   = 0x04
	// trigger has both halves: one of one-shot and persistent, and one of level and edge.
	trigger = triggerOneShot | triggerLevel

	infinite = 1<<32 - 1

	success     = 0
	waitTimeout = 258
	errTimeout  = 1460
)

// timedOut tells the success that found nothing to dequeue. The reference gives it both names.
func timedOut(code uint32) bool { return code == waitTimeout || code == errTimeout }

// failed tells the failure of a whole call, which then has changed nothing.
func failed(code uint32) bool { return code != success && !timedOut(code) }

// exhausted tells the codes that say nothing about a socket: memory or quota has run out.
func exhausted(code uint32) bool {
	switch code {
	case 8, 14, 1450, 1453, 1455, 1816, 10055:
		return true
	}
	return false
}
