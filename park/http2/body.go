package http2

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A queue holds the bytes of a body that were received and not read, in pooled pieces. The zero value is empty.
type queue struct {
	pieces []*piece
	read   int // of the first piece
	size   int
}

type piece struct{ b []byte }

// pieceSizes are the capacities of pieces. A body of a few bytes must not hold much memory.
var pieceSizes = [...]int{1 << 10, 4 << 10, 16 << 10}

var piecePools [len(pieceSizes)]sync.Pool

// newPiece returns an empty piece, with room for n bytes if the largest has it.
func newPiece(n int) *piece {
	class := 0
	for class < len(pieceSizes)-1 && pieceSizes[class] < n {
		class++
	}
	if p, ok := piecePools[class].Get().(*piece); ok {
		return p
	}
	return &piece{make([]byte, 0, pieceSizes[class])}
}

func (p *piece) release() {
	p.b = p.b[:0]
	piecePools[slices.Index(pieceSizes[:], cap(p.b))].Put(p)
}

func (q *queue) write(p []byte) {
	q.size += len(p)
	for len(p) > 0 {
		if n := len(q.pieces); n == 0 || len(q.pieces[n-1].b) == cap(q.pieces[n-1].b) {
			q.pieces = append(q.pieces, newPiece(len(p)))
		}
		last := q.pieces[len(q.pieces)-1]
		n := min(len(p), cap(last.b)-len(last.b))
		last.b = append(last.b, p[:n]...)
		p = p[n:]
	}
}

// take removes bytes from the queue, and returns how many.
func (q *queue) take(p []byte) (n int) {
	for n < len(p) && q.size > 0 {
		first := q.pieces[0]
		m := copy(p[n:], first.b[q.read:])
		n += m
		q.size -= m
		if q.read += m; q.read == len(first.b) {
			first.release()
			q.pieces[0], q.read = nil, 0
			q.pieces = q.pieces[1:]
		}
	}
	return n
}

// drop discards everything.
func (q *queue) drop() {
	for _, p := range q.pieces {
		p.release()
	}
	*q = queue{}
}

// A requestBody is the body of a request. The bytes that have arrived are in stream.body, whose size the windows bound.
type requestBody struct {
	st     *stream
	closed bool
	eof    bool
}

// Read waits until a part of the body has arrived.
func (b *requestBody) Read(p []byte) (int, error) {
	st := b.st
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.expects && !b.closed {
		st.expects = false
		if st.err == nil { // not by send, which may wait: the handler may send the final status from another goroutine
			c.appendHeader(c.buffer(), st.id, &header{status: http.StatusContinue}, false)
			c.flush()
		}
	}
	for len(p) > 0 && st.body.size == 0 && !st.gotEnd && st.bodyErr == nil && st.err == nil && !b.closed {
		st.cond.Wait()
	}
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	n := st.body.take(p)
	if n > 0 {
		st.consumed(int32(n))
		c.flush()
	}
	switch {
	case n > 0 || len(p) == 0:
		return n, nil
	case st.bodyErr != nil:
		return 0, st.bodyErr
	case st.err != nil && st.err != errStreamEnded:
		return 0, st.err
	}
	if !b.eof {
		b.eof = true
		for name := range st.r.Trailer {
			if values, ok := st.trailer[name]; ok {
				st.r.Trailer[name] = values
			}
		}
	}
	return 0, io.EOF
}

// Close makes what is left of the body be discarded.
func (b *requestBody) Close() error {
	c := b.st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	b.closed = true
	b.st.dropBody()
	b.st.wake()
	c.startWriting()
	return nil
}

// dropBody discards what has arrived of the body, and what will arrive. The caller holds c.mu.
func (st *stream) dropBody() {
	if st.exchange == &handled {
		return
	}
	st.bodyClosed = true
	n := int32(st.body.size)
	st.body.drop()
	if n > 0 {
		st.c.giveBack(n)
	}
}

// giveBack returns n bytes to the client's window of the stream, as conn.giveBack does. The caller holds c.mu.
func (st *stream) giveBack(n int32) {
	c := st.c
	if st.unacked += n; st.err == nil && st.unacked > 0 && st.unacked >= c.server.streamWindow()/2 {
		c.buffer().b = appendWindowUpdate(c.buffer().b, st.id, st.unacked)
		st.inflow += st.unacked
		st.unacked = 0
	}
}

// streamWindow returns what the client may send on a new stream: until it has acknowledged the server's settings it may not
// know them, and may use a larger window already. The caller holds c.mu.
func (c *conn) streamWindow() int32 {
	if c.acked {
		return c.server.streamWindow()
	}
	return max(initialWindow, c.server.streamWindow())
}

// setDeadline sets the time of a timeout, for http.ResponseController.
func (st *stream) setDeadline(t handlerTimeout, at time.Time) {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.taker != nil {
		return
	}
	if st.timers[t] != nil {
		st.timers[t].Stop()
		st.timers[t] = nil
	}
	switch d := time.Until(at); {
	case at.IsZero(), st.err != nil:
	case d > 0:
		st.startTimer(t, d)
	default:
		st.timeOut(t)
	}
}
