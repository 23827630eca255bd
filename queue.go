package socknotify

import (
	"sync"

	"github.com/socknotify/socknotify/internal/kernel/port"
)

// A queue holds posts, removals and completions in order. The two ends have a lock each, so that
// calls that queue and calls that dequeue do not wait for one another.
type queue[K comparable] struct {
	_   [144]byte // keeps what is before the queue, which all calls read, out of its cache lines
	in  queueEnd[K]
	out queueEnd[K]

	free segments[K]
}

// A queueEnd is where entries are added or removed. What changes with each entry is in one cache
// line, so that a processor fetches one line. The two ends are two lines apart, because processors
// fetch lines in pairs.
type queueEnd[K comparable] struct {
	// Turnstile is the lock. It counts the entries that have passed. An entry is in the segment
	// before it is counted in.
	port.Turnstile
	at       int // in seg
	seg      *segment[K]
	posts    uint64 // going in
	closed   bool   // to what would go in
	returned bool   // going out: segments came back since the queue was last empty
	_        [150]byte
}

const segmentSize = 64

type segment[K comparable] struct {
	entries [segmentSize]Notification[K]
	next    *segment[K] // written before anything in it is counted in
}

// size is the number of entries, at some instant during the call.
func (q *queue[K]) size() int64 {
	out := q.out.Count() // first, or more could have gone out than in
	return int64(q.in.Count() - out)
}

// any reports whether there are entries.
func (q *queue[K]) any() bool { return q.in.Count() != q.out.Count() }

// push appends an entry. It returns false if the queue is closed.
func (q *queue[K]) push(n Notification[K]) bool {
	e := &q.in
	e.Enter()
	if e.closed {
		e.Leave(0)
		return false
	}
	if e.at == segmentSize || e.seg == nil {
		q.extend()
	}
	e.seg.entries[e.at] = n
	e.at++
	if n.kind == port.Posted {
		e.posts++
	}
	e.Leave(1)
	return true
}

// extend adds a segment to the incoming end. The lock of that end is held.
func (q *queue[K]) extend() {
	s := q.free.get()
	if q.in.seg == nil {
		q.out.seg = s // the taking end reads the count first
	} else {
		q.in.seg.next = s
	}
	q.in.seg, q.in.at = s, 0
}

// take moves the oldest entries to out, and returns their number, that of posts and that of
// completions among them. It ends the operations of the completions.
func (q *queue[K]) take(out []Notification[K]) (n, posts, completions int) {
	e := &q.out
	e.Enter()
	waiting := q.in.Count() - e.Count()
	if uint64(len(out)) > waiting {
		out = out[:waiting]
	}
	for n < len(out) {
		if e.at == segmentSize {
			old := e.seg
			e.seg, e.at = old.next, 0
			old.next = nil
			q.free.put(old)
			e.returned = true
		}
		from := e.seg.entries[e.at:min(segmentSize, e.at+len(out)-n)]
		for i := range from {
			entry := &from[i]
			switch entry.kind {
			case port.Posted:
				posts++
			case port.Completion:
				(*port.Flight)(entry.of).End()
				completions++
			}
			out[n] = *entry
			*entry = Notification[K]{} // the queue keeps no key that was dequeued (G11)
			n++
		}
		e.at += len(from)
	}
	if n > 0 && uint64(n) == waiting && e.returned {
		e.returned = false
		q.free.settle()
	}
	e.Leave(n)
	return n, posts, completions
}

// close drops all entries and refuses new ones.
func (q *queue[K]) close() {
	q.in.Enter()
	defer q.in.Leave(0)
	q.out.Enter()
	q.in.closed = true
	q.in.seg, q.out.seg = nil, nil
	q.in.at, q.out.at = 0, 0
	q.free.drop()
	q.out.Leave(int(q.in.Count() - q.out.Count()))
}

func (q *queue[K]) posted() uint64 {
	q.in.Enter()
	defer q.in.Leave(0)
	return q.in.posts
}

// segments are unused segments: as many as came back from the largest recent backlog.
type segments[K comparable] struct {
	mu    sync.Mutex
	first *segment[K]
	count int
	// used is how many are in use, peak the most since there was last nothing queued, and quiet how
	// many times in a row that was a fraction of what there is: the way back from a burst.
	used, peak, quiet int
}

const quietLimit = 64

func (f *segments[K]) get() *segment[K] {
	f.mu.Lock()
	f.used++
	f.peak = max(f.peak, f.used)
	s := f.first
	if s != nil {
		f.first, s.next = s.next, nil
		f.count--
	}
	f.mu.Unlock()
	if s == nil {
		s = new(segment[K])
	}
	return s
}

func (f *segments[K]) put(s *segment[K]) {
	f.mu.Lock()
	f.used--
	f.count++
	s.next, f.first = f.first, s
	f.mu.Unlock()
}

// settle is called when the queue is empty. It drops half of the segments that have been too many
// for a long time.
func (f *segments[K]) settle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count <= f.peak {
		f.quiet = 0
	} else if f.quiet++; f.quiet == quietLimit {
		f.quiet = 0
		for drop := (f.count - f.peak + 1) / 2; drop > 0; drop-- {
			f.first = f.first.next
			f.count--
		}
	}
	f.peak = f.used
}

func (f *segments[K]) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.first, f.count = nil, 0
}
