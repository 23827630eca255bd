package conn

// An output is what a connection has to send: the bytes of its queue first, and then its sources.
type output struct {
	queue  []byte // queue[head:] is to be sent
	head   int
	memory *buffer  // that the queue is in, or nil
	vec    [][]byte // used by sendVec
	since  uint64   // tick at which the peer last took queued bytes

	source *source // the first of a list
	behind int     // bytes that were written behind sources

	// What follows the last byte, in this order.
	notify bool // TLS sends a close_notify when no source is left
	shut   bool // sending is shut down when no bytes are queued; implies wOut
}

// left returns the number of bytes in the queue.
func (q *output) left() int { return len(q.queue) - q.head }

// total returns the number of bytes that were written and not sent.
func (q *output) total() int { return q.left() + q.behind }

// push appends to the queue.
func (q *output) push(from *buffers, b []byte) {
	if len(q.queue)+len(b) > cap(q.queue) {
		have := q.left()
		if need := have + len(b); need > cap(q.queue)/2 {
			next := from.get(max(need+need/4, 2048))
			copy(next.b, q.queue[q.head:])
			from.put(q.memory)
			q.memory = next
		} else {
			copy(q.memory.b, q.queue[q.head:])
		}
		q.queue, q.head = q.memory.b[:have], 0
	}
	q.queue = append(q.queue, b...)
}

// drop empties the queue, and gives its memory back.
func (q *output) drop(to *buffers) {
	to.put(q.memory)
	q.memory, q.queue, q.head = nil, nil, 0
}
