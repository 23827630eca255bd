package port

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
)

// A Slot is what a port knows of one handle. There is one per handle number for the life of the
// port; registrations come and go in it.
//
// Its truth is the state word, which harvesting reads and swaps without a lock. Everything that
// changes the kernel's view of the handle is done under mu, which is held across the kernel's
// change, so that a change of the word and its system call are not overtaken by another's.
type Slot struct {
	Word atomic.Uint64
	// Reg is of the registration that word tells of. It is stored before the word says registered
	// and cleared after it says otherwise, so whoever finds the same epoch in the word before and
	// after reading it has the right one.
	Reg atomic.Pointer[Record]
	Mu  sync.Mutex
	// next links the slot into the port's recheck list while the word has WRecheck: index + 1.
	next uint32
}

// A Record is what a registration holds beside the word and the key (see Keyed). It is never changed, only replaced.
type Record struct {
	fd   *fdstate.FD // of a socket of package sock, or nil
	Work *Work       // where reports are not delivered but worked on, or nil
}

// A Keyed is a record with its key. Every record of a port is in one.
type Keyed[K comparable] struct {
	Record // first, so that a pointer to it is one to the whole
	Key    K
}

// KeyOf returns the key of a record that is in a Keyed[K].
func KeyOf[K comparable](rec *Record) K { return (*Keyed[K])(unsafe.Pointer(rec)).Key }

// ClearKey zeroes the key of a record that is in a Keyed[K].
func ClearKey[K comparable](rec *Record) {
	var zero K
	(*Keyed[K])(unsafe.Pointer(rec)).Key = zero
}

// The state word: flags below, the epoch above.
//
// The epoch changes with every operation that reaches the kernel. The kernel's reports carry it in
// their token, so a report from before the operation, be it of this registration or of a socket
// that had the number earlier, is known as stale by a comparison (G9), and dropping it loses
// nothing, because the operation made the kernel look again.
const (
	wFilter     = 0x7     // the filter, as in Events
	WRegistered = 1 << 3  // the slot has a registration
	WEnabled    = 1 << 4  // which may notify
	wOneShot    = 1 << 5  // once
	wEdge       = 1 << 6  // by edges; otherwise by level
	wPending    = 1 << 7  // the kernel reported while disabled: ask it again, never deliver from this
	wSuppressed = 1 << 8  // the kernel has been told to be silent
	WRecheck    = 1 << 9  // linked into the recheck list; survives registrations
	wStream     = 1 << 10 // a socket that can be hung up on
	wConn       = 1 << 11 // the port holds a connection for it (X2)
	WAccept     = 1 << 16 // a listener whose connections the port accepts (X3)
	wStrict     = 1 << 17 // by edges, strictly (WithStrictEdge)
	wOverlapped = 1 << 18 // no registration of the program's: operations wait for it, or have (X4)
	wReported   = 12      // four bits from here: what need not be repeated, without edges or by strict ones

	wWorked = WAccept | wOverlapped // reports are worked on (see work)

	wKind = wStream | wConn | wWorked // what stays when a registration is enabled again

	epochShift = 26
	epochOne   = 1 << epochShift
	flagMask   = epochOne - 1

	// MaxIndex bounds the handles: tokens are an index below the epoch.
	MaxIndex = 1<<epochShift - 1
)

func token(word uint64, index uint32) uint64 { return word&^uint64(flagMask) | uint64(index) }
func tokenIndex(token uint64) uint32         { return uint32(token & flagMask) }
func SameEpoch(a, b uint64) bool             { return a>>epochShift == b>>epochShift }
func wordFilter(word uint64) Events          { return Events(word & wFilter) }
func nextEpoch(word, keep, set uint64) uint64 {
	return word&^uint64(flagMask) + epochOne | word&keep | set
}

// armed is the part of the word that an enabled registration's arguments make.
func armed(filter Events, t Trigger) uint64 {
	w := uint64(filter) | WRegistered | WEnabled
	if t&TriggerOneShot != 0 {
		w |= wOneShot
	}
	if t&TriggerEdge != 0 {
		w |= wEdge
	}
	return w
}

// update swaps the word for what change makes of it, however often others get in between.
func (s *Slot) update(change func(uint64) uint64) (was, is uint64) {
	for {
		was = s.Word.Load()
		is = change(was)
		if s.Word.CompareAndSwap(was, is) {
			return was, is
		}
	}
}

// interest is what the kernel must watch for a filter. PeerClosed is always asked for, because a
// dead stream is known by it from one that was never started. Urgent data comes along with In,
// because it ends a receive early: one that was short of its buffer then does not mean drained.
func interest(filter Events) backend.Mask {
	m := backend.PeerClosed
	if filter&EventIn != 0 {
		m |= backend.In | backend.Urgent
	}
	if filter&EventOut != 0 {
		m |= backend.Out
	}
	return m
}

// The told bits stand for conditions that a kernel without edges would go on repeating: an edge
// registration has heard of them, or they mean nothing to its filter.
func reportedBits(m backend.Mask) uint64 {
	var t uint64
	if m&backend.In != 0 {
		t |= 1 << wReported
	}
	if m&backend.Out != 0 {
		t |= 2 << wReported
	}
	if m&backend.PeerClosed != 0 {
		t |= 4 << wReported
	}
	if m&backend.Dead != 0 {
		t |= 8 << wReported
	}
	return t
}

// unreported is the interest that is left to a word.
func unreported(word uint64) backend.Mask {
	m := interest(wordFilter(word))
	if word&(1<<wReported) != 0 {
		m &^= backend.In | backend.Urgent
	}
	if word&(2<<wReported) != 0 {
		m &^= backend.Out
	}
	if word&(4<<wReported) != 0 {
		m &^= backend.PeerClosed
	}
	if word&(8<<wReported) != 0 {
		m |= backend.Dead
	}
	return m
}

// A table holds the slots by index.
type table struct{ pages[page] }

const pageSize = 64

type page [pageSize]Slot

// Lookup returns the slot of an index, or nil where no page holds it.
func (t *table) Lookup(index uint32) *Slot {
	pg := t.pages.lookup(int(index / pageSize))
	if pg == nil {
		return nil
	}
	return &pg[index%pageSize]
}

// at returns the slot of an index and makes its page if there is none.
func (t *table) at(index uint32) *Slot {
	if s := t.Lookup(index); s != nil {
		return s
	}
	return &t.pages.make(int(index / pageSize))[index%pageSize]
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
