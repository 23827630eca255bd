package http2

import (
	"slices"
	"sync"
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
