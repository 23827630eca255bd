package stream

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/socknotify/socknotify/internal/serving/carrier"
	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/group"
)

// Bytes are given to the system at once if it takes them. What it does not take is queued, and
// written
//
//   - by the stream's function, which runs when the connection can be written to, if it is parked;
//   - by a goroutine, if the function is running, because OnInput may run for long, and on systems
//     and connections that cannot be written to without waiting. It ends when the queue is empty.
//
// A response of HTTP/2 takes what the client's windows permit, and wakes the function when they
// open: then the function alone writes the queue.
//
// So a parked stream needs no goroutine to be written to, and no call waits for a peer. A write
// through package tls cannot be interrupted. It is begun when the system has room for it. If it
// must wait nevertheless, because the system has run short of memory, WriteTimeout ends the stream.

// A streamRest is what only a stream needs that has something queued, or is ending. It is guarded by
// the mu of its stream.
type streamRest struct {
	streamQueue
	cause  error // for OnClose; the first one counts
	strays int   // bytes received without OnInput
}

// needRest returns s.rest, and makes it if there is none. The caller holds s.mu.
func (s *Stream) needRest() *streamRest {
	if s.rest == nil {
		s.rest = new(streamRest)
	}
	return s.rest
}

// A streamQueue has the bytes that a connection has not taken.
type streamQueue struct {
	blocks [][]byte      // the first may be a part of one
	size   int           // bytes
	since  time.Duration // when the connection took something
	latest int           // blocks[latest-1] is of WriteLatest, and not begun; 0: none is
	empty  chan struct{} // for Flush, or nil
}

// queue returns the queue, or nil if it is empty. The caller holds s.mu.
func (s *Stream) queue() *streamQueue {
	if s.rest == nil || len(s.rest.blocks) == 0 {
		return nil
	}
	return &s.rest.streamQueue
}

// blockCost is what a block in a queue costs besides its bytes: its slice, in an array of up to
// twice the length that is needed, and what its allocation is rounded up by.
const blockCost = 64

// cost returns the memory that q needs.
func (q *streamQueue) cost() int { return q.size + len(q.blocks)*blockCost }

// gather returns the first bytes of the queue, in a block or in buf.
func (q *streamQueue) gather(buf []byte) []byte {
	if len(q.blocks) == 1 || len(q.blocks[0]) >= len(buf) {
		return q.blocks[0]
	}
	n := 0
	for _, b := range q.blocks {
		if n += copy(buf[n:], b); n == len(buf) {
			break
		}
	}
	return buf[:n]
}

// begin notes that a goroutine writes the first n bytes without the lock, so that they cannot be
// replaced.
func (q *streamQueue) begin(n int) {
	for i := 0; n > 0; i++ {
		if q.latest == i+1 {
			q.latest = 0
		}
		n -= len(q.blocks[i])
	}
}

// remove removes n bytes that were written.
func (q *streamQueue) remove(n int) {
	q.size -= n
	for n > 0 && n >= len(q.blocks[0]) {
		n -= len(q.blocks[0])
		q.blocks[0] = nil
		q.blocks = q.blocks[1:]
		q.latest = max(q.latest-1, 0)
	}
	if n > 0 {
		q.blocks[0] = q.blocks[0][n:]
		if q.latest == 1 {
			q.latest = 0
		}
	}
}

// A writeKind says how bytes are written.
type writeKind uint8

const (
	writeCopy   writeKind = iota // what is queued is copied
	writeShared                  // it is not
	writeLatest                  // as writeShared, beyond MaxQueued, in place of the one before
	writeLast                    // as writeShared, beyond MaxQueued, and nothing follows
)

// Write sends b, or queues what the system does not take. b is written whole, or refused: the bytes
// of concurrent calls do not mix. b may be used again when Write has returned.
//
// Write fails with ErrClosed if the stream is closed or being closed, with ErrQueueFull or
// ErrSlow if MaxQueued is reached, as SlowPolicy says, and with the errors of the connection, which
// end the stream.
func (s *Stream) Write(b []byte) error { return s.write(b, writeCopy) }

// WriteShared is Write without a copy: b must not be changed any more. A message for many streams
// is so kept once.
func (s *Stream) WriteShared(b []byte) error { return s.write(b, writeShared) }

// Writev is Write for several blocks, which follow each other.
func (s *Stream) Writev(blocks ...[]byte) error {
	size := 0
	for _, b := range blocks {
		size += len(b)
	}
	buf := streamBuffers.Get().(*[16 << 10]byte)
	defer streamBuffers.Put(buf)
	if size > len(buf) {
		return s.write(slices.Concat(blocks...), writeShared)
	}
	n := 0
	for _, b := range blocks {
		n += copy(buf[n:], b)
	}
	return s.write(buf[:n], writeCopy)
}

// WriteLatest is WriteShared for what only the latest of counts, such as the answer to a ping: it
// replaces what the call before has queued, if that was not begun. So at most two of them are
// queued, and MaxQueued does not apply. An empty b changes nothing.
func (s *Stream) WriteLatest(b []byte) error { return s.write(b, writeLatest) }

// WriteLast is WriteShared for the last bytes that are written: later calls fail. MaxQueued does
// not apply. The stream stays open until CloseWrite, Close or Abort, or until the peer ends it.
// OnClose gets the cause, as with Close.
func (s *Stream) WriteLast(b []byte, cause error) error {
	s.mu.Lock()
	if s.out == outOpen {
		s.setCause(cause)
	}
	s.mu.Unlock()
	return s.write(b, writeLast)
}

func (s *Stream) write(b []byte, kind writeKind) error {
	err := s.enqueue(b, kind)
	switch {
	case err == nil, err == ErrClosed:
		return err
	case err != ErrQueueFull:
		return s.writeFailed(err)
	case s.in.SlowPolicy == SlowDrop:
		s.in.dropped.Add(1)
		return err
	}
	s.Abort(park.ErrSlow)
	return park.ErrSlow
}

// enqueue writes what the system takes of b, and queues the rest.
func (s *Stream) enqueue(b []byte, kind writeKind) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, q := s.in, s.queue()
	switch {
	case s.out != outOpen:
		return ErrClosed
	case len(b) == 0 && kind != writeLast:
		return nil
	case q != nil && kind < writeLatest && g.maxQueued > 0 && q.cost()+len(b)+blockCost > g.maxQueued:
		return ErrQueueFull
	case kind == writeLast:
		s.out = outLast
		defer s.wake() // OnTimer may look at that
	}
	if q != nil && kind == writeLatest && q.latest > 0 {
		old := &q.blocks[q.latest-1]
		s.grow(len(b) - len(*old))
		*old = b
		return nil
	}
	begun := 0
	if q == nil {
		var err error
		if begun, err = s.tryWrite(b); err != nil || begun == len(b) {
			return err
		}
		b = b[begun:]
	}
	if len(b) == 0 {
		return nil
	}
	if kind == writeCopy {
		b = bytes.Clone(b)
	}
	first := q == nil
	if first {
		q = &s.needRest().streamQueue
		q.since = g.lot().Now()
	}
	q.blocks = append(q.blocks, b)
	s.grow(len(b))
	if kind == writeLatest && begun == 0 {
		q.latest = len(q.blocks)
	}
	switch w := s.end.Carrier().Writer(); {
	case !first:
	case s.end.Fresh, w == carrier.FunctionWriter, w == carrier.AnyWriter && s.reader == streamParked:
		s.wake()
	default:
		s.startWriting()
	}
	return nil
}

// grow counts n more bytes in the queue. The caller holds s.mu.
func (s *Stream) grow(n int) {
	s.rest.size += n
	s.in.group.Queued.Add(int64(n))
}

// advance removes n bytes that were written. The caller holds s.mu.
func (s *Stream) advance(n int) {
	q := s.queue()
	if n == 0 || q == nil {
		return
	}
	q.remove(n)
	q.since = s.in.lot().Now()
	s.moved = q.since
	s.in.group.Queued.Add(int64(-n))
	if q.size == 0 {
		s.dropQueue()
	}
}

// dropQueue empties the queue. The caller holds s.mu.
func (s *Stream) dropQueue() {
	r := s.rest
	if r == nil {
		return
	}
	s.in.group.Queued.Add(int64(-r.size))
	if r.empty != nil {
		close(r.empty)
	}
	if r.streamQueue = (streamQueue{}); r.cause == nil && r.strays == 0 {
		s.rest = nil
	}
}

// tryWrite writes what the connection takes without waiting, which may be nothing. The caller holds
// s.mu.
func (s *Stream) tryWrite(b []byte) (n int, err error) {
	c := s.end.Carrier()
	if s.writing != notWriting || s.end.Fresh || c.Writer() == carrier.GoroutineWriter {
		return 0, nil
	}
	err = s.in.group.Log.Guard(s.end.Conn, func() (err error) {
		n, err = c.Write(s.owner(), b)
		return err
	})
	if n > 0 {
		s.moved = s.in.lot().Now()
	}
	return n, err
}

// flush writes what the system takes of the queue, for the function.
func (s *Stream) flush() error {
	err := s.flushLocked()
	if err != nil {
		err = s.writeFailed(err)
	}
	return err
}

func (s *Stream) flushLocked() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue() != nil && s.writing == notWriting {
		buf := streamBuffers.Get().(*[16 << 10]byte)
		for q := s.queue(); q != nil; q = s.queue() {
			b := q.gather(buf[:])
			var n int
			n, err = s.tryWrite(b)
			if s.advance(n); n < len(b) {
				break
			}
		}
		streamBuffers.Put(buf)
		if s.queue() != nil && err == nil && (s.reader == streamBlocking || s.end.Carrier().Writer() == carrier.GoroutineWriter) {
			s.startWriting()
		}
	}
	return err
}

// startWriting starts a goroutine that writes the queue. The caller holds s.mu.
func (s *Stream) startWriting() {
	if s.writing == notWriting {
		s.writing = writing
		s.in.group.Goroutines.Go(s.writeQueue)
	}
}

// writeQueue writes until the queue is empty.
func (s *Stream) writeQueue() {
	buf := streamBuffers.Get().(*[16 << 10]byte)
	defer streamBuffers.Put(buf)
	returned := false
	defer func() {
		if returned {
			return
		}
		s.mu.Lock() // a method of the connection has called runtime.Goexit
		last := s.writing == writingLast
		s.writing = notWriting
		s.mu.Unlock()
		s.writeFailed(group.ErrGoexit)
		if last {
			s.finish(errStreamEnded)
		}
	}()
	var err error
	for {
		s.mu.Lock()
		q := s.queue()
		if q == nil || err != nil {
			break
		}
		b := q.gather(buf[:])
		q.begin(len(b))
		s.mu.Unlock()
		var n int
		err = s.in.group.Log.Guard(s.end.Conn, func() (err error) {
			n, err = s.end.WriteAndWait(s.owner(), b)
			return err
		})
		if n > 0 && !s.end.Carrier().MayWait() && errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil // the peer is slow, but it reads
		}
		s.mu.Lock()
		s.advance(n)
		s.mu.Unlock()
	}
	last := s.writing == writingLast
	s.writing = notWriting
	s.in.group.Log.Call(s.end.Conn, func() { s.end.Conn.SetWriteDeadline(time.Time{}) })
	if s.out != outOpen {
		s.wake() // CloseWrite or Close may be due
	}
	s.mu.Unlock()
	returned = true
	if err != nil {
		s.writeFailed(err)
	}
	if last {
		s.finish(errStreamEnded)
	}
}

// writeFailed closes the stream because of an error of a write, and returns the cause.
func (s *Stream) writeFailed(err error) error {
	if serving.IsTimeout(err) {
		err = park.ErrSlow
	} else {
		err = fmt.Errorf("stream: write: %w", err)
	}
	s.Abort(err)
	return err
}
