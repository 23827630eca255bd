package operation

import (
	"unsafe"

	"github.com/socknotify/socknotify/internal/port"
)

// An outlet is where completions go: into the call's entries, if all earlier completions have been
// dequeued, and otherwise into the queue behind them (O3).
type outlet struct {
	port   *port.Port
	out    port.Entries
	n      int
	queued bool
}

// complete completes an operation that has its result and is on no list any more. The lock of its
// list is held: completions of a socket are queued under it, so an empty queue has none of them.
func (t *outlet) complete(o *Overlapped) {
	o.forget()
	if f := t.port.Core.Completed; f != nil {
		f(unsafe.Pointer(o)) // has returned when Cancel finds that the operation has completed
	}
	if at := o.at.Swap(0); at != 0 && at != atFile {
		t.port.NoteCompletion(at - 1)
	}
	pk := port.Packet{Rec: o.Rec, Of: unsafe.Pointer(o), Data: uintptr(o.N), Kind: port.Completion}
	if t.port.PutCompletion(t.out.From(t.n), pk) {
		t.n++
		return
	}
	t.queued = true
}
