package port

import (
	"sync/atomic"
	"time"
)

// A helper carries out operations while no call does (O13). It consists of a timer, and of a
// goroutine that exists only while operations wait for their sockets, no call waits on the port,
// and none has dequeued for a period of the timer.
//
// The goroutine leads: it parks in the backend as a leader does. It is not on the list of waiters,
// so no producer wakes it. It has no entries: completions are queued, and any other report is put
// off (keep). The slot of such a report goes on the recheck list, and the next call that dequeues
// makes the backend report it again. The helper rechecks the slots of operations alone.
//
// The timer keeps calls that come and go from starting a goroutine each time. It runs while
// operations wait and calls dequeue. waiters.help says when it must be started:
//
//	helpNone   by the start of an operation that waits. No operation waits.
//	helpDue    by the next call that stops waiting. There was a waiter when the timer fired.
//	helpTimed  by its own function. It runs, or its function does.
//
// The call that has swapped the state to helpTimed, and then the function, owns the timer and the
// state.
//
// Why no operation is left alone. The function stores helpNone and then counts the operations; a
// start counts its operation and then loads the state. The function stores helpDue and then counts
// the waiters; a call leaves their list and then loads the state. So in each case one of the two
// finds the other, and starts the timer. The count of operations is a sum over the stripes, which
// change while it is taken. It can be too small only if it has missed an operation that was
// counted after helpNone was stored, whose start then starts the timer.
//
// Why no wake-up is lost. A call that is added to the list while the helper leads wakes it under
// the lock, and the helper ends its lead under the lock if the list is not empty. A call that puts
// the slot of an operation on the recheck list reads leads afterwards; the helper begins to lead,
// and then rechecks.
//
// Why a call that returns with nothing has missed nothing. What the helper has taken from the
// kernel is neither there nor on the recheck list for a moment. Such a call polls while the helper
// does not lead (dequeueAlone): it has read the same even leads before and after, or it has
// suspended the helper.
type helper struct {
	timer    *time.Timer // its function is Core.help
	dequeued uint64      // how much was, when the timer last fired
	recheck  atomic.Bool // an operation's slot may be on the recheck list

	// The lock of waiters guards the following.
	suspended int32         // calls that do not let the helper lead
	left      chan struct{} // is closed when the lead ends
}

// lead stands for a helper as the leader of its port. It is never on a list.
var lead waiter

const (
	helpNone = iota
	helpDue
	helpTimed
)

// HelpAfter is the period of the timer. A busy port pays for one run of its function in each, and
// a program that does not dequeue waits for two at most.
const HelpAfter = 50 * time.Millisecond

// helping reports whether the helper leads.
func (k *waiters) helping() bool { return k.leads.Load()%2 != 0 }

// timeHelp starts the timer if the state is still from.
func (k *waiters) timeHelp(from uint32) {
	if !k.help.CompareAndSwap(from, helpTimed) {
		return
	}
	h := &k.core.helper
	if h.timer == nil {
		h.timer = time.AfterFunc(forever, k.core.help) // its function uses h.timer
	}
	h.timer.Reset(k.core.HelpAfter)
}

// wakeHelper makes the helper poll, and end its lead if there is reason to.
func (k *waiters) wakeHelper() {
	if !k.helping() {
		return
	}
	k.Enter()
	defer k.Leave(0)
	if k.helping() {
		k.core.Poller.Wake()
	}
}

// helpRecheck makes the helper recheck the slots of operations.
func (k *waiters) helpRecheck() {
	if k.helping() {
		k.core.helper.recheck.Store(true)
		k.wakeHelper()
	}
}

// SuspendHelper makes the helper end its lead, and lead no more.
func (p *Port) SuspendHelper() { p.Waiters.suspendHelper() }

// suspendHelper makes the helper end its lead, and lead no more until resumeHelper.
func (k *waiters) suspendHelper() {
	k.Enter()
	k.core.helper.suspended++
	var left chan struct{}
	if k.helping() {
		left = k.core.helper.left
		k.core.Poller.Wake()
	}
	k.Leave(0)
	if left != nil {
		<-left
	}
}

func (k *waiters) resumeHelper() {
	k.Enter()
	defer k.Leave(0)
	k.core.helper.suspended--
}
