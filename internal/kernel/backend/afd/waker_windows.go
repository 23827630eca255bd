package afd

import (
	"sync"
	"time"

	"golang.org/x/sys/windows"
)

// A waker ends a Park with a packet. At most one of its packets is queued. No packet is needed while no goroutine
// is parked, because enter reads woken. The goroutine that dequeues the packet calls received or taken.
type waker struct {
	port windows.Handle

	mu      sync.Mutex
	parked  bool
	woken   bool // set by Wake; the next Park returns at once
	expired bool // the deadline of this Park has passed
	posted  bool
}

// enter begins a Park. It returns false if Park must return at once.
func (w *waker) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parked = !w.woken
	w.woken, w.expired = false, false
	return w.parked
}

// leave ends a Park. Its return answers all earlier Wakes.
func (w *waker) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parked, w.woken, w.expired = false, false, false
}

func (w *waker) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken = true
	w.post()
}

// expire is called by the timer. If the timer fires too late, it may end another Park early.
func (w *waker) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expired = w.parked
	w.post()
}

// post queues the packet if a goroutine is parked and must wake. If the system has no memory for it, post is retried.
func (w *waker) post() {
	if w.posted || !w.parked || !w.woken && !w.expired {
		return
	}
	w.posted = windows.PostQueuedCompletionStatus(w.port, 0, keyWake, nil) == nil
	if !w.posted {
		time.AfterFunc(time.Millisecond, w.retry)
	}
}

func (w *waker) retry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.post()
}

// received is called by the parked goroutine that has dequeued the packet. It reports whether this Park must end.
func (w *waker) received() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.posted = false
	return w.woken || w.expired
}

// taken is called by any other goroutine that has dequeued the packet.
func (w *waker) taken() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.posted = false
	w.post()
}
