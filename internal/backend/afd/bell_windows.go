package afd

import (
	"sync"
	"time"

	"golang.org/x/sys/windows"
)

// A bell ends a Park, by a packet. There is at most one of its packets, and none is needed while nobody is
// parked: rung is looked at before the next one parks. Whoever dequeues the packet tells with heard.
type bell struct {
	port windows.Handle

	mu     sync.Mutex
	parked bool
	rung   bool // by Wake; the next Park returns at once
	late   bool // the deadline of this Park has passed
	posted bool
}

// enter begins a Park; false says that it is over.
func (b *bell) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parked = !b.rung
	b.rung, b.late = false, false
	return b.parked
}

// leave ends a Park. Whoever rang is answered by its return.
func (b *bell) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parked, b.rung, b.late = false, false, false
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rung = true
	b.post()
}

// expire is the timer's. One that fires too late ends another Park early, if any.
func (b *bell) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.late = b.parked
	b.post()
}

// post queues the packet if somebody is to hear it. Where the system has no memory for it, it tries again.
func (b *bell) post() {
	if b.posted || !b.parked || !b.rung && !b.late {
		return
	}
	b.posted = windows.PostQueuedCompletionStatus(b.port, 0, keyBell, nil) == nil
	if !b.posted {
		time.AfterFunc(time.Millisecond, b.again)
	}
}

func (b *bell) again() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.post()
}

// heard is for the parked goroutine: its packet was dequeued. It tells whether that was rung for this Park.
func (b *bell) heard() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.posted = false
	return b.rung || b.late
}

// overheard is for anybody else who dequeued it.
func (b *bell) overheard() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.posted = false
	b.post()
}
