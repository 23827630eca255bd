package psn

import (
	"unsafe"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// A System has the functions of the operating system that the backend needs.
type System struct {
	// Process is ProcessSocketNotifications. It applies the registrations, each with its own Result, then
	// dequeues into entries, waiting up to timeout milliseconds. It returns the number of entries that it
	// filled, and the native return value. An empty slice is a NULL array.
	Process func(port uintptr, registrations []Registration, timeout uint32, entries []Entry) (n int, code uint32)

	OpenPort  func() (port uintptr, err error)
	ClosePort func(port uintptr) error
	// Post queues a packet with a key and no event (PostQueuedCompletionStatus).
	Post func(port, key uintptr) error

	// Describe and PollOne are those of backend.Poller.
	Describe func(handle uintptr) (backend.Kind, error)
	PollOne  func(handle uintptr) backend.Mask

	// Pin keeps a socket alive until Unpin. Same reports whether a handle still names it.
	Pin   func(handle uintptr) (pin uintptr, err error)
	Same  func(handle, pin uintptr) bool
	Unpin func(pin uintptr)

	// Datagram opens a writable socket for Probe. If send is not nil, it sends a datagram to the same socket.
	Datagram func() (handle uintptr, send func() error, release func(), err error)
	// Errno returns the error for a code.
	Errno func(code uint32) error

	// Snapshots is set by Probe if a packet has only the conditions that held when it was queued. If not set,
	// a packet also has the conditions that began to hold before it was dequeued, as the reference says.
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

// The layouts equal those of Windows on every system that tests run on: 24 and 32 bytes, or 16 and 16.
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
	// trigger has one flag of one-shot and persistent, and one of level and edge.
	trigger = triggerOneShot | triggerLevel

	infinite = 1<<32 - 1

	success     = 0
	waitTimeout = 258
	errTimeout  = 1460
)

// timedOut reports whether a call succeeded with nothing to dequeue. The reference has both codes for it.
func timedOut(code uint32) bool { return code == waitTimeout || code == errTimeout }

// failed reports whether a call failed as a whole, and so has changed nothing.
func failed(code uint32) bool { return code != success && !timedOut(code) }

// exhausted reports whether a code means that memory or a quota has run out, which says nothing about a socket.
func exhausted(code uint32) bool {
	switch code {
	case 8, 14, 1450, 1453, 1455, 1816, 10055:
		return true
	}
	return false
}
