package conn

import (
	"fmt"
	"io"
	"os"
)

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

// A source is a part of a connection's output that is sent when everything before it was taken by
// the system: a reader, a file, or bytes that were written behind one of these. The first source is
// output.source. While there is one, wOut and wFull are set, so Data is not called, and writes are
// appended to the list.
type source struct {
	next  *source
	r     io.Reader
	empty int // calls of r in a row that returned neither bytes nor an error

	f         *os.File // from off, left bytes
	off, left int64

	b []byte // if there is no reader and no file
}

// maxEmptyReads bounds the calls of a reader that return neither bytes nor an error.
const maxEmptyReads = 100

// read reads a piece of a reader or a file.
func (src *source) read(b []byte) (n int, err error) {
	if src.f != nil {
		if src.left == 0 {
			return 0, io.EOF
		}
		n, err = src.f.ReadAt(b[:min(int64(len(b)), src.left)], src.off)
		src.off += int64(n)
		if src.left -= int64(n); err == io.EOF && n > 0 {
			err = nil
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return n, err
	}
	n, err = src.r.Read(b)
	if n < 0 || n > len(b) {
		return 0, fmt.Errorf("server: Read of %T returned %d for a buffer of %d bytes", src.r, n, len(b))
	}
	if src.empty++; n > 0 || err != nil {
		src.empty = 0
	}
	if src.empty >= maxEmptyReads {
		err = io.ErrNoProgress
	}
	return n, err
}

// close closes what the source reads from. An error has no consequence, because nothing more is
// read.
func (src *source) close() error {
	switch r := src.r.(type) {
	case nil:
		if src.f != nil {
			return src.f.Close()
		}
	case io.Closer:
		return r.Close()
	}
	return nil
}
