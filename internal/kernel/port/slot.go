package port

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/socknotify/socknotify/internal/sparse"
)

// A Slot is the state of one handle number. It exists for the life of the port; registrations come
// and go in it.
//
// The state word is authoritative, and harvesting reads and swaps it without a lock. Everything
// that changes what the backend watches is done under Mu, which is held across the system call, so
// that a word and its system call are not overtaken by those of another call.
type Slot struct {
	word atomic.Uint64
	// Reg is the record of the registration in word. It is stored before the word says registered,
	// and cleared after the word says otherwise. So a reader that finds the same epoch in word
	// before and after has the right record.
	Reg atomic.Pointer[Record]
	Mu  sync.Mutex
	// next links the slot into the port's recheck list while the word has wRecheck: index + 1.
	next uint32
	// waits is set while the slot is counted as one whose operations wait. Mu guards it.
	waits bool
}

// The state word has flags below and the epoch above.
//
// The epoch changes with every operation that reaches the backend, and the backend's reports carry
// it in their token. A report with another epoch is stale: it is from before the operation, or from
// another socket that had the number (G9). Dropping it loses nothing, because the operation made
// the kernel poll again.
const (
	wFilter     = 0x7     // the filter, as in Events
	wRegistered = 1 << 3  // the slot has a registration
	wEnabled    = 1 << 4  // the registration may notify
	wOneShot    = 1 << 5  // it notifies once per enable
	wEdge       = 1 << 6  // edge-triggered; otherwise level-triggered
	wPending    = 1 << 7  // the backend reported while disabled: enabling must poll
	wSuppressed = 1 << 8  // the backend does not report
	wRecheck    = 1 << 9  // linked into the recheck list; survives registrations
	wStream     = 1 << 10 // the socket is a stream
	wConn       = 1 << 11 // the port holds a connection for it (X2)
	wReported   = 12      // from here: reported conditions, as in backend.Mask
	wAccept     = 1 << 18 // a listener whose connections the port accepts (X3)
	wStrict     = 1 << 19 // a strict edge (WithStrictEdge)
	wOverlapped = 1 << 20 // not registered by the program, but for operations (X4)

	wReportedMask = 1<<6 - 1 // after a shift by wReported

	wWorked = wAccept | wOverlapped // reports are handled by work

	wKind = wStream | wConn | wWorked // flags that an enable keeps

	epochShift = 26
	epochOne   = 1 << epochShift
	flagMask   = epochOne - 1

	// MaxIndex is the largest handle, because a token has the index below the epoch.
	MaxIndex = 1<<epochShift - 1
)

func token(word uint64, index uint32) uint64 { return word&^uint64(flagMask) | uint64(index) }
func tokenIndex(token uint64) uint32         { return uint32(token & flagMask) }
func sameEpoch(a, b uint64) bool             { return a>>epochShift == b>>epochShift }
func wordFilter(word uint64) Events          { return Events(word & wFilter) }
func nextEpoch(word, keep, set uint64) uint64 {
	return word&^uint64(flagMask) + epochOne | word&keep | set
}

// armed returns the flags of an enabled registration.
func armed(filter Events, t Trigger) uint64 {
	w := uint64(filter) | wRegistered | wEnabled
	if t&TriggerOneShot != 0 {
		w |= wOneShot
	}
	if t&TriggerEdge != 0 {
		w |= wEdge
	}
	return w
}

// update applies change to the word, and tries again if the word was changed concurrently.
func (s *Slot) update(change func(uint64) uint64) (was, is uint64) {
	for {
		was = s.word.Load()
		is = change(was)
		if s.word.CompareAndSwap(was, is) {
			return was, is
		}
	}
}

// A table holds the slots by index.
type table struct{ pages sparse.Pages[page] }

const pageSize = 64

type page [pageSize]Slot

// Lookup returns the slot of an index, or nil if it has no page.
func (t *table) Lookup(index uint32) *Slot {
	pg := t.pages.Lookup(int(index / pageSize))
	if pg == nil {
		return nil
	}
	return &pg[index%pageSize]
}

// At returns the slot of an index, and makes its page if there is none.
func (t *table) At(index uint32) *Slot {
	if s := t.Lookup(index); s != nil {
		return s
	}
	return &t.pages.At(int(index / pageSize))[index%pageSize]
}

// From returns the first slot from a handle on whose page exists, and its handle.
func (t *table) From(h Socket) (s *Slot, at Socket, ok bool) {
	pages := t.pages.All()
	for ; h/pageSize < Socket(len(pages)); h = (h/pageSize + 1) * pageSize {
		if pg := pages[h/pageSize].Load(); pg != nil {
			return &pg[h%pageSize], h, true
		}
	}
	return nil, h, false
}

// A View is what the word and the record of a slot say of its registration.
type View struct {
	Record                       *Record
	Filter                       Events
	Trigger                      Trigger
	Enabled, Pending, Suppressed bool
	epoch                        uint64
}

// View returns what a slot says of its registration, and false if it has none.
func (s *Slot) View() (v View, ok bool) {
	for {
		was := s.word.Load()
		if was&wRegistered == 0 {
			return v, false
		}
		reg := s.Reg.Load()
		if reg == nil || !s.Same(View{epoch: was}) || (reg.Work != nil) != (was&wWorked != 0) {
			continue
		}
		return View{
			Record: reg, Filter: wordFilter(was), Trigger: wordTrigger(was),
			Enabled: was&wEnabled != 0, Pending: was&wPending != 0, Suppressed: was&wSuppressed != 0, epoch: was,
		}, true
	}
}

// Same reports whether the slot has the registration of a view, and in the same epoch.
func (s *Slot) Same(v View) bool { return sameEpoch(s.word.Load(), v.epoch) }

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

// A connTable holds the registered connections of package net (X2). It keeps them reachable, and
// finds them by their value, so that one whose descriptor is closed can still be removed.
type connTable struct {
	mu      sync.Mutex
	byConn  map[syscall.Conn]*heldConn
	byIndex map[uint32]*heldConn
}

type heldConn struct {
	conn  syscall.Conn
	raw   syscall.RawConn
	index uint32
}

func (t *connTable) lookup(conn syscall.Conn) (heldConn, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.byConn[conn]; h != nil {
		return *h, true
	}
	return heldConn{}, false
}

// of returns the connection of a registration, or nil.
func (t *connTable) of(index uint32) *heldConn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byIndex[index]
}

// hold adds the connection of a registration. The slot is locked.
func (t *connTable) hold(conn syscall.Conn, raw syscall.RawConn, index uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byConn == nil {
		t.byConn = make(map[syscall.Conn]*heldConn)
		t.byIndex = make(map[uint32]*heldConn)
	}
	if old := t.byIndex[index]; old != nil && t.byConn[old.conn] == old {
		delete(t.byConn, old.conn) // another connection for the same descriptor
	}
	h := &heldConn{conn, raw, index}
	t.byConn[conn], t.byIndex[index] = h, h
}

// release removes the connection of an ended registration. The slot is locked.
func (t *connTable) release(index uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.byIndex[index]
	if h == nil {
		return
	}
	delete(t.byIndex, index)
	if t.byConn[h.conn] == h {
		delete(t.byConn, h.conn)
	}
}

func (t *connTable) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byConn, t.byIndex = nil, nil
}
