package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/serving/carrier"
	"github.com/socknotify/socknotify/internal/serving/parking"
	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/durations"
	"github.com/socknotify/socknotify/internal/serving/group"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// A Stream is a connection of [Streams], to which any goroutine may write. Its methods may be
// called concurrently, and none of them waits for the peer, except for Flush. Only Value may be
// set before [Streams.Open], which makes a Stream usable. A Stream must not be copied.
type Stream struct {
	// Value is for the program.
	Value any

	in  *Streams
	end carrier.Endpoint

	mu    sync.Mutex
	moved time.Duration // when bytes were last sent or received, since the lot's start
	rest  *streamRest   // nil for a stream that is open and has nothing queued
	index int32         // see member

	reader  streamReader
	out     streamOutput
	writing streamWriting
	woken   bool // the function must look again before it leaves the stream parked
}

// A streamReader says where the function of a stream is: the code that reads it, calls OnInput and
// OnTimer, and in the end OnClose.
//
//	running   → parked     the function has parked the stream, or is about to
//	running   → blocking   the stream cannot be parked: a goroutine of its own calls the function
//	parked    → running    the lot calls the function
//	running, blocking      OnClose is called in the end
//
// A goroutine that has something for the function sets woken. If the reader is parked it also wakes
// the lot, and if it is blocking it interrupts the Read. The function clears woken when it begins
// to look, and looks again if woken is set when it is about to park, or has just parked, the
// stream.
type streamReader uint8

const (
	streamRunning streamReader = iota // also before Start
	streamParked
	streamBlocking
)

// A streamOutput says what may still be written. It only grows.
type streamOutput uint8

const (
	outOpen       streamOutput = iota
	outLast                    // nothing is added to the queue any more
	outHalfClose               // CloseWrite is called when the queue is empty
	outHalfClosed              // it was called
	outClose                   // the stream is to end, and input is discarded: outLinger follows
	outLinger                  // CloseWrite was called; the peer is given time to end its stream
	outCut                     // the stream ends when the function looks
	outEnded                   // the queue was dropped; the function calls OnClose, or has
)

// A streamWriting says whether a goroutine writes the queue.
type streamWriting uint8

const (
	notWriting  streamWriting = iota
	writing                   // until the queue is empty
	writingLast               // the same, and then it ends the stream
)

// NetConn returns the connection: a *net.TCPConn, a *net.UnixConn, or a [*Conn] around another one,
// and for [Streams.OpenResponse] one that is shared by other streams. It is for its addresses and
// its settings. The caller must not read, write, park or close it.
func (s *Stream) NetConn() net.Conn { return s.end.Carrier().NetConn() }

// A streamOwner is a Stream as its carrier and its group see it.
type streamOwner Stream

func (s *Stream) owner() *streamOwner { return (*streamOwner)(s) }

func (o *streamOwner) Place() *int32            { return &o.index }
func (o *streamOwner) Lot() *parking.Lot        { return o.in.lot() }
func (o *streamOwner) Carrier() carrier.Carrier { return o.end.Carrier() }
func (o *streamOwner) Run()                     { (*Stream)(o).run() }
func (o *streamOwner) Function() func(net.Conn) { return func(net.Conn) { o.Run() } }
func (o *streamOwner) WriteDeadline() time.Time { return serving.Deadline(o.in.WriteTimeout) }

func (o *streamOwner) Parked() (net.Conn, func(net.Conn)) {
	return carrier.PlainConn[*streamOwner]{Owner: o}, carrier.RunPlain[*streamOwner]
}

// RemoteAddr returns the address of the peer.
func (s *Stream) RemoteAddr() net.Addr { return s.end.Conn.RemoteAddr() }

// Idle returns the time since bytes were last sent or received.
func (s *Stream) Idle() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.in.lot().Now() - s.moved
}

// Queued returns the number of bytes that the system has not taken yet.
func (s *Stream) Queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queue(); q != nil {
		return q.size
	}
	return 0
}

// Closing reports whether the stream was closed, is being closed, or has had its last Write.
func (s *Stream) Closing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out != outOpen
}

// init prepares a stream. It is called once, before the program has it.
//
// If the program's hook panics, the stream ends as after a write that has failed.
func (s *Stream) init(g *Streams, conn net.Conn) {
	g.group.Accepted.Add(1)
	s.in, s.moved = g, g.lot().Now()
	lazy, err := s.end.Bind(g.lot(), conn)
	if err == nil {
		var t unwrap.TLSConn
		t, err = s.end.PendingTLS(g.lot())
		s.end.Fresh = lazy || t != nil
	}
	if err != nil {
		s.Abort(err)
	}
}

// Start begins to serve a stream. From then on it is one of [Streams.All], and Shutdown closes it.
// open, if not nil, is called first. An error of open ends the stream, as one of OnInput does.
// received is what was read from the connection before. Start handles what has arrived, and returns
// when the stream is parked, or has a goroutine. If a write has failed before Start, it fails with
// the cause of that, and OnClose is not called.
func (s *Stream) Start(received []byte, open func(*Stream) error) error {
	g := s.in
	s.mu.Lock()
	failed := s.out == outEnded
	s.mu.Unlock()
	if failed {
		g.group.Log.Guard(s.end.Conn, s.end.Conn.Close)
		g.group.Release()
		return s.rest.cause
	}
	if g.group.Add(s.owner()) {
		g.endStream(s) // Shutdown has not seen it
	}
	s.ending(func() error {
		if open != nil {
			if err := g.group.Log.Guard(s.end.Conn, func() error { return open(s) }); err != nil {
				s.Close(err)
			}
		}
		return s.serve(received, s.end.Fresh && len(received) == 0)
	})
	return nil
}

// The results of a function that mean that the stream goes on elsewhere, or has a cause already.
var (
	errStreamLeft  = errors.New("stream: left to the goroutine that writes")
	errStreamEnded = errors.New("stream: the stream has ended")
)

// run is the stream's function.
func (s *Stream) run() {
	s.ending(func() error { return s.serve(nil, false) })
}

// ending calls f, and ends the stream if f fails, panics or calls runtime.Goexit.
func (s *Stream) ending(f func() error) {
	err := group.ErrGoexit
	defer func() {
		if err == group.ErrGoexit {
			err = s.leave(err)
		}
		if err != nil && err != errStreamLeft {
			s.finish(err)
		}
	}()
	if guarded := s.in.group.Log.Guard(s.end.Conn, func() error { err = f(); return nil }); guarded != nil {
		err = guarded
	}
}

// serve handles what there is, and parks the stream. An error ends it. silent is as in turn.
func (s *Stream) serve(received []byte, silent bool) error {
	for {
		next, err := s.turn(received, silent)
		again := false
		if err == nil {
			again, err = s.park(next)
		} else if unwrap.IsUnfit(err) {
			err = s.in.lot().Refuse(s.end.Conn, fmt.Errorf("park: %w: %w", parking.ErrUnparkable, err))
		}
		if errors.Is(err, parking.ErrUnparkable) {
			s.in.group.Goroutines.Go(s.block)
			err = nil
		}
		if err != nil || !again {
			return err
		}
		received, silent = nil, silent && s.end.Fresh
	}
}

// turn handles what there is. It returns the time until more is due, or a negative one. With silent
// the peer has sent nothing yet.
func (s *Stream) turn(received []byte, silent bool) (next time.Duration, err error) {
	s.mu.Lock()
	s.reader, s.woken = streamRunning, false
	ended := s.out == outEnded
	s.mu.Unlock()
	if ended {
		return 0, errStreamEnded
	}
	if s.end.Fresh && !silent {
		if silent, err = s.establish(); err != nil {
			return 0, err
		}
	}
	if !silent {
		if err = s.flush(); err != nil {
			return 0, err
		}
		if len(received) > 0 && !s.input(received) {
			return 0, park.ErrTooLong
		}
		if err = s.read(false); err != nil {
			return 0, err
		}
	}
	return s.due()
}

// establish performs the handshake of a fresh connection. A header was read by the lot. It reports
// whether the peer is silent: the function runs for another reason than the socket.
func (s *Stream) establish() (silent bool, err error) {
	g := s.in
	if s.end.Carrier().Quiet() && s.reader != streamBlocking {
		return true, nil
	}
	t, err := s.end.PendingTLS(g.lot())
	if err != nil {
		return false, err
	}
	if t != nil {
		shake := func() error { return g.group.ShakeHands(t, g.HandshakeTimeout) }
		if err := g.group.Log.Guard(s.end.Conn, shake); err != nil {
			return false, err
		}
	}
	s.mu.Lock()
	s.end.Fresh = false
	s.mu.Unlock()
	return false, nil
}

// maxStrays bounds what a peer may send that has nothing to say.
const maxStrays = 4 << 10

var streamBuffers = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// read reads and handles what there is. With wait it reads once, and waits until the read deadline.
func (s *Stream) read(wait bool) error {
	buf := streamBuffers.Get().(*[16 << 10]byte)
	defer streamBuffers.Put(buf)
	c, p := s.end.Carrier(), carrier.ForRecord
	switch {
	case wait:
		p = carrier.UntilUnset
	case c.Quiet():
		p = carrier.Impatient
	}
	for range carrier.MaxReads {
		n, err := c.Read(buf[:], p)
		if n > 0 && !s.input(buf[:n]) {
			return park.ErrTooLong
		}
		if err == io.EOF {
			return s.leave(io.EOF)
		}
		if err != nil || wait || c.Emptied(n, len(buf)) {
			return err
		}
	}
	return nil
}

// input handles what was received. It reports false if the peer has sent too much.
func (s *Stream) input(b []byte) bool {
	g := s.in
	now := g.lot().Now()
	s.mu.Lock()
	discard, strays := s.out >= outClose, 0
	if !discard {
		s.moved = now
		if g.OnInput == nil {
			r := s.needRest()
			r.strays = min(r.strays+len(b), maxStrays+1)
			strays = r.strays
		}
	}
	s.mu.Unlock()
	switch {
	case discard:
	case g.OnInput == nil:
		return strays <= maxStrays
	default:
		g.calls.Add(1)
		began := time.Time{}
		if g.TimeCalls {
			began = time.Now()
		}
		if err := g.group.Log.Guard(s.end.Conn, func() error { return g.OnInput(s, b) }); err != nil {
			s.Close(err)
		}
		if g.TimeCalls {
			g.times.Record(time.Since(began))
		}
	}
	return true
}

// leave ends the stream when no function can run for it any more: at the end of the peer's stream,
// after which it is not parked because it would be readable all the time. What is queued is still
// sent. leave returns the error for the function to end with. A connection that notifies the end
// once can be parked: unless it has ended otherwise, leave returns nil as long as something is
// queued.
func (s *Stream) leave(cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked(cause)
	c := s.end.Carrier()
	switch once := c.NotifiesOnce(); {
	case s.queue() == nil, once && (cause == group.ErrGoexit || c.Failure() != nil):
		return errStreamEnded
	case once:
		return nil
	}
	s.startWriting()
	s.writing = writingLast
	return errStreamLeft
}

// due does what is due, and returns the time until more is, or a negative one.
func (s *Stream) due() (next time.Duration, err error) {
	g := s.in
	next = -1
	if g.OnTimer != nil {
		if err := g.group.Log.Call(s.end.Conn, func() { next = g.OnTimer(s) }); err != nil {
			s.Close(err)
		}
		if next <= 0 {
			next = -1
		}
	}
	now := g.lot().Now()
	add := func(from, d time.Duration) (passed bool) {
		left := durations.Add(from, d) - now
		if d > 0 && (next < 0 || left < next) {
			next = max(left, 1)
		}
		return d > 0 && left <= 0
	}
	s.mu.Lock()
	q := s.queue()
	lingers := now < durations.Add(s.moved, closeLinger) && parking.HalfCloser(s.end.Conn) != nil
	halfClose := q == nil && (s.out == outHalfClose || s.out == outClose && lingers)
	switch {
	case s.out >= outCut, s.out == outClose && q == nil && !halfClose,
		s.out == outLinger && add(s.moved, closeLinger):
		err = errStreamEnded
	case halfClose:
		s.out++
		s.moved = now
		add(now, closeLinger)
	case q != nil && add(q.since, serving.Or(g.WriteTimeout, serving.DefaultTimeout)):
		err = park.ErrSlow
	case s.out < outClose && add(s.moved, g.IdleTimeout):
		err = park.ErrIdle
	}
	s.mu.Unlock()
	switch {
	case err == park.ErrSlow:
		s.Abort(err)
	case err == park.ErrIdle:
		g.group.Idle.Add(1)
	case halfClose:
		err = g.group.Log.Guard(s.end.Conn, parking.HalfCloser(s.end.Conn).CloseWrite)
	}
	return next, err
}

// closeLinger is the time that a peer has to end its stream after Close, unless nothing has moved
// for so long. If the connection were closed while there is something to read, the system would
// reset it, and the peer would lose what it has not received.
const closeLinger = 500 * time.Millisecond

// park parks the stream, for at most the time next unless that is negative. It reports whether the
// function must look again.
func (s *Stream) park(next time.Duration) (again bool, err error) {
	c, silent := s.end.Carrier(), false
	if s.end.Fresh {
		t, err := s.end.PendingTLS(s.in.lot())
		if err != nil {
			return false, err
		}
		silent = t != nil // its client speaks first
	}
	s.mu.Lock()
	if s.woken {
		s.mu.Unlock()
		return true, nil
	}
	want := parking.AwaitRead
	if s.queue() != nil && s.writing == notWriting && !silent {
		want |= parking.AwaitWrite
	}
	s.reader = streamParked
	s.mu.Unlock()
	err = c.Park(s.owner(), want, next)
	s.mu.Lock()
	if err != nil {
		s.reader = streamRunning
	}
	woken, ended := s.woken, s.out == outEnded
	s.mu.Unlock()
	switch {
	case err != nil:
		return false, err
	case ended: // the lot may not have had the connection when Abort closed it
		c.Close(s.owner(), true)
	case woken:
		c.Wake(s.owner())
	}
	return false, nil
}

// block serves a stream that cannot be parked.
func (s *Stream) block() {
	s.ending(func() error {
		s.mu.Lock()
		s.reader = streamBlocking
		s.mu.Unlock()
		if s.end.Fresh {
			if _, err := s.establish(); err != nil {
				return err
			}
		}
		for {
			if err := s.flush(); err != nil {
				return err
			}
			next, err := s.due()
			if err != nil {
				return err
			}
			s.mu.Lock()
			until := time.Time{}
			switch {
			case s.woken:
				until = unwrap.Past
			case next > 0:
				until = time.Now().Add(next)
			}
			s.woken = false
			s.in.lot().SetReadDeadline(s.end.Conn, until) // under the lock, because of wake
			s.mu.Unlock()
			err = s.read(true)
			if unwrap.IsUnfit(err) && s.interrupted(until) {
				err = nil // the error of a deadline, in words of its own
			}
			if err != nil {
				return err
			}
		}
	})
}

// interrupted reports whether a Read of the goroutine has had a deadline that has passed.
func (s *Stream) interrupted(until time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.woken || !until.IsZero() && !time.Now().Before(until)
}

// Wake makes OnTimer run soon. It is for a goroutine that has changed what OnTimer looks at.
func (s *Stream) Wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake()
}

// wake makes the function look. The caller holds s.mu.
func (s *Stream) wake() {
	s.woken = true
	switch s.reader {
	case streamBlocking:
		s.in.lot().SetReadDeadline(s.end.Conn, unwrap.Past)
	case streamParked:
		s.end.Carrier().Wake(s.owner())
	}
}

// CloseWrite ends the stream to the peer after what is queued. Later writes fail, and what the peer
// sends is still handled. It fails with errors.ErrUnsupported if the connection has no such method.
func (s *Stream) CloseWrite() error {
	if parking.HalfCloser(s.end.Conn) == nil {
		return errors.ErrUnsupported
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out >= outHalfClose {
		return ErrClosed
	}
	s.out = outHalfClose
	s.wake()
	return nil
}

// Close closes the stream after what is queued. Later writes fail, and what the peer sends is
// discarded. The peer then has half a second to end its stream, so that it gets everything, unless
// the connection has no CloseWrite method. OnClose gets the cause, which is ErrClosed if it
// is nil, unless there was one before. Close fails with ErrClosed if the stream was closed.
func (s *Stream) Close(cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out >= outClose {
		return ErrClosed
	}
	s.closeLocked(cause)
	s.wake()
	return nil
}

// closeLocked is Close for a caller that holds s.mu, without waking the function.
func (s *Stream) closeLocked(cause error) {
	s.setCause(cause)
	if s.out == outHalfClosed {
		s.out = outCut // the peer has had time
	}
	s.out = max(s.out, outClose)
}

// setCause sets the cause for OnClose, unless there is one. The caller holds s.mu.
func (s *Stream) setCause(cause error) {
	if r := s.needRest(); r.cause == nil {
		r.cause = cmp.Or(cause, ErrClosed)
	}
}

// Abort closes the stream at once. What is queued is lost, and what the system has not sent, too.
// Its cause and its error are those of Close.
func (s *Stream) Abort(cause error) error {
	g := s.in
	s.mu.Lock()
	if s.out == outEnded {
		s.mu.Unlock()
		return ErrClosed
	}
	s.out = outEnded
	s.setCause(cause)
	switch cause { // before OnClose is called
	case park.ErrSlow:
		g.group.Slow.Add(1)
	case park.ErrIdle:
		g.group.Idle.Add(1)
	}
	s.dropQueue()
	s.mu.Unlock()
	s.reset()
	return nil
}

// reset resets the connection, unless it is closed.
func (s *Stream) reset() {
	s.in.group.Log.Guard(s.end.Conn, func() error { return s.end.Carrier().Reset(s.owner(), true) })
}

// finish closes the connection and calls OnClose. It is called once, by the function or for it.
func (s *Stream) finish(err error) {
	g := s.in
	s.mu.Lock()
	aborted := s.out == outEnded
	s.out, s.reader = outEnded, streamRunning
	s.setCause(err)
	err = s.rest.cause
	s.dropQueue()
	s.mu.Unlock()
	if aborted { // Abort may not have reset it yet, and Close would end it as if it were whole
		s.reset()
	}
	g.group.Log.Guard(s.end.Conn, s.end.Conn.Close)
	g.group.Mu.Lock()
	g.group.Remove(s.owner())
	g.group.Mu.Unlock()
	defer g.group.Release()
	if g.OnClose != nil {
		g.group.Log.Call(s.end.Conn, func() { g.OnClose(s, err) })
	}
}

// Flush waits until the system has taken everything that was written, or the stream has ended. It
// holds a program back that writes more than MaxQueued. It fails with ErrClosed if the stream
// has ended, and with the cause of ctx.
func (s *Stream) Flush(ctx context.Context) error {
	s.mu.Lock()
	if q := s.queue(); q != nil {
		if q.empty == nil {
			q.empty = make(chan struct{})
		}
		empty := q.empty
		s.mu.Unlock()
		select {
		case <-empty:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if s.out == outEnded {
		return ErrClosed
	}
	return nil
}
