package socknotify

import (
	"sync"
	"sync/atomic"
)

// A queue holds posts and removals in the order in which they came.
type queue[K comparable] struct {
	// size is the number of entries, for those who only want to know whether to take the lock.
	size atomic.Int64

	mu     sync.Mutex
	ring   []Notification[K] // its length is a power of two
	head   int
	count  int
	posts  uint64
	closed bool
	// peak is the largest count since the ring was last empty, and quiet how many times in a row
	// it was then a fraction of the ring: the way back from a burst.
	peak, quiet int
}

const (
	smallRing  = 64
	quietTurns = 64
)

// push appends an entry; false says that the queue is closed.
func (q *queue[K]) push(n Notification[K]) bool {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return false
	}
	if q.count == len(q.ring) {
		q.resize(max(smallRing, 2*len(q.ring)))
	}
	q.ring[(q.head+q.count)&(len(q.ring)-1)] = n
	q.count++
	q.peak = max(q.peak, q.count)
	if n.posted {
		q.posts++
	}
	q.size.Store(int64(q.count))
	q.mu.Unlock()
	return true
}

// take moves the oldest entries to out and returns how many, and how many of them were posts.
func (q *queue[K]) take(out []Notification[K]) (n, posts int) {
	q.mu.Lock()
	n = min(len(out), q.count)
	for i := range n {
		e := &q.ring[q.head]
		out[i] = *e
		if e.posted {
			posts++
		}
		*e = Notification[K]{} // the key is the caller's now (G11)
		q.head = (q.head + 1) & (len(q.ring) - 1)
	}
	q.count -= n
	if q.count == 0 && n > 0 {
		q.settle()
	}
	q.size.Store(int64(q.count))
	q.mu.Unlock()
	return n, posts
}

// settle halves a ring that has long been too large for what passes through it.
func (q *queue[K]) settle() {
	if len(q.ring) > smallRing && q.peak < len(q.ring)/4 {
		if q.quiet++; q.quiet == quietTurns {
			q.resize(len(q.ring) / 2)
			q.quiet = 0
		}
	} else {
		q.quiet = 0
	}
	q.peak = 0
}

func (q *queue[K]) resize(n int) {
	ring := make([]Notification[K], n)
	for i := range q.count {
		ring[i] = q.ring[(q.head+i)&(len(q.ring)-1)]
	}
	q.ring, q.head = ring, 0
}

// close drops all entries and refuses new ones.
func (q *queue[K]) close() {
	q.mu.Lock()
	q.closed, q.ring, q.head, q.count = true, nil, 0, 0
	q.size.Store(0)
	q.mu.Unlock()
}

func (q *queue[K]) posted() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.posts
}
