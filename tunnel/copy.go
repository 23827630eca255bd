package tunnel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/internal/serving/carrier"
	"github.com/socknotify/socknotify/internal/serving/parking"
	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/group"
	"github.com/socknotify/socknotify/internal/serving/nowait"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// A copying says what a goroutine that copies a direction may wait for.
type copying uint8

const (
	copyReady   copying = iota // the rest of a TLS record, for ReadyWait
	copyQuietly                // nothing
	copyRest                   // nothing, and only what is kept is copied if the side is not plain
	copyOwn                    // anything: it is the goroutine of a connection that is not parked
)

type tunnelBuffer [32 << 10]byte

var tunnelBuffers = sync.Pool{New: func() any { return new(tunnelBuffer) }}

// copy copies the direction that begins at s, for the goroutine that has set s.copying.
func (s *tunnelSide) copy(c copying) {
	before, err := s.sent.Load(), error(group.ErrGoexit)
	defer func() {
		if err != errFlows {
			s.of.release(s, s.sent.Load() != before, err)
		}
	}()
	err = s.of.in.group.Log.Guard(s.end.Conn, func() error { return s.transfer(c) })
}

// copyAlone starts goroutines for a side that cannot be parked. The caller holds the tunnel's lock.
func (s *tunnelSide) copyAlone(want parking.Awaited) {
	g := s.of.in
	if want&parking.AwaitRead != 0 {
		s.copying = true
		g.group.Goroutines.Go(func() { s.copy(copyOwn) })
	}
	if p := s.peer(); want&parking.AwaitWrite != 0 {
		p.copying = true
		g.group.Goroutines.Go(func() { p.copy(copyOwn) })
	}
}

// transfer moves bytes until one of the sides would wait, or others should have their turn.
func (s *tunnelSide) transfer(c copying) error {
	from := s.Carrier()
	if s.rest != nil {
		if err := s.forwardRest(nil); err != nil {
			return err
		}
	}
	switch own := c == copyOwn; {
	case s.rest != nil:
		return nil
	case s.eof, s.parts && !s.isDone():
		return s.endStream()
	case own != s.alone:
		return nil // the side is parked before it is read, or has its own goroutine
	case c == copyRest && from.MayWait():
		return nil // it is parked for writing, and the lot may be reading its header
	}
	buf := tunnelBuffers.Get().(*tunnelBuffer)
	defer tunnelBuffers.Put(buf)
	for i := 0; i < carrier.MaxReads || c == copyOwn; i++ {
		n, err := s.read(from, buf[:], c)
		came := i > 0 || n > 0
		if n > 0 && !s.parts {
			if err := s.forward(buf[:n], true, nil); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return s.ended()
		case unwrap.IsUnfit(err):
			return err
		case err != nil:
			return fmt.Errorf("tunnel: %w", err)
		case s.rest != nil:
			return nil
		case c == copyOwn:
			if err := s.of.touch(n > 0); err != nil {
				return err
			}
		case from.Emptied(n, len(buf)):
			if came && s.isBrisk() && s.startFlow(nil) {
				return errFlows
			}
			return nil
		case s.hasMuch(i):
			return errFlows
		}
	}
	return nil
}

// touch notes that bytes were moved by a goroutine that goes on, or else looks whether the time is
// over.
func (t *Tunnel) touch(moved bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life != tunnelOpen {
		return net.ErrClosed
	}
	if moved {
		t.moved = t.in.lot().Now()
		return nil
	}
	return t.arm()
}

// forward sends bytes to the peer, and keeps the rest. If by is not nil, it is used in place of the
// peer's socket.
func (s *tunnelSide) forward(b []byte, clone bool, by carrier.Socket) (err error) {
	p := s.peer()
	to, n := p.Carrier(), 0
	if by == nil {
		n, err = to.Write(p, b)
	} else {
		n, err = to.(carrier.DirectCarrier).WriteBy(by, b)
	}
	s.sent.Add(uint64(n))
	s.track(b[:n])
	if err == nil && n < len(b) {
		err = to.Failure()
	}
	switch {
	case serving.IsTimeout(err):
		return park.ErrSlow
	case err != nil:
		return fmt.Errorf("tunnel: %w", err)
	}
	if b = b[n:]; len(b) > 0 {
		if clone {
			b = bytes.Clone(b)
		}
		s.keep(&tunnelRest{bytes: b, sealed: to.Unsent()})
	}
	return nil
}

// A tunnelRest is what was received, and not taken by the peer.
type tunnelRest struct {
	bytes  []byte
	sealed int          // bytes before them, in a TLS record that was sent in part
	pipe   *nowait.Pipe // which has the bytes instead, if it is not nil
}

func (r *tunnelRest) len() int {
	if r.pipe != nil {
		return r.pipe.Len()
	}
	return r.sealed + len(r.bytes)
}

// keep makes r the rest of the direction.
func (s *tunnelSide) keep(r *tunnelRest) {
	s.rest = r
	s.of.in.group.Queued.Add(int64(r.len()))
}

// takeRest returns the rest of the direction, which has none then.
func (s *tunnelSide) takeRest() *tunnelRest {
	r := s.rest
	s.rest = nil
	s.of.in.group.Queued.Add(int64(-r.len()))
	return r
}

// dropRest drops the rest of the direction.
func (s *tunnelSide) dropRest() {
	if s.rest == nil {
		return
	}
	if r := s.takeRest(); r.pipe != nil {
		r.pipe.Release()
	}
}

// forwardRest sends the rest to the peer, and keeps what is left of it. by is as in forward.
func (s *tunnelSide) forwardRest(by carrier.Socket) error {
	r := s.takeRest()
	if r.pipe == nil {
		return s.forward(r.bytes, false, by)
	}
	err := s.drain(r.pipe, false)
	if err == nil && r.len() > 0 {
		s.keep(r)
	} else {
		r.pipe.Release()
	}
	return err
}

// drain sends what a pipe has to the peer. With wait it waits until the peer has taken all, or the
// write deadline.
func (s *tunnelSide) drain(pipe *nowait.Pipe, wait bool) error {
	n, err := pipe.Drain(s.peer().end.Socket, wait)
	s.sent.Add(uint64(n))
	if err != nil {
		err = fmt.Errorf("tunnel: %w", err)
	}
	return err
}

// A direction in which nothing moves keeps its goroutine for a pause, at most twice. With a pipe it
// needs no buffer.
var ( // variables, so that tests need not wait
	bufferPause = 10 * time.Millisecond
	pipePause   = time.Second
)

// errFlows is the result of a transfer that a goroutine goes on with.
var errFlows = errors.New("tunnel: left to the goroutine of a busy direction")

// flowReads is how many reads in a row, besides the last one, make a direction with TLS busy.
const flowReads = 4

// briskPause is the longest pause between the bytes of a direction that is busy with small messages.
const briskPause = 5 * time.Millisecond

// isBrisk notes that bytes have come. It reports whether others have come a short time before. It takes
// a pause of 65.5 seconds for a short one, and then a goroutine begins for nothing.
func (s *tunnelSide) isBrisk() bool {
	now := millis(s.of.in.lot().Now())
	pause := now - s.came
	s.came = now
	return pause < millis(briskPause)
}

// millis returns the last digits of a time in milliseconds.
func millis(d time.Duration) uint16 { return uint16(d / time.Millisecond) }

// hasMuch starts a flow of a direction of which more is to be read than one read returns: with a pipe
// if there is one for it, and with TLS after some reads in a row. It reports whether it has. before is
// the number of reads in a row before the last one.
func (s *tunnelSide) hasMuch(before int) bool {
	if s.splices() {
		pipe := nowait.TakePipe()
		return pipe != nil && s.startFlow(pipe)
	}
	return before >= flowReads && s.startFlow(nil)
}

// splices reports whether the kernel may move the bytes of the direction through a pipe.
func (s *tunnelSide) splices() bool {
	from, ok := s.Carrier().(carrier.DirectCarrier)
	to, too := s.peer().Carrier().(carrier.DirectCarrier)
	return ok && too && from.Spliced() && to.Spliced() && s.frames() == nil && !s.alone && !s.peer().alone
}

// startFlow gives a busy direction a goroutine, if its sides are read and written by their sockets. It
// reports whether it has.
func (s *tunnelSide) startFlow(pipe *nowait.Pipe) bool {
	p := s.peer()
	_, from := s.Carrier().(carrier.DirectCarrier)
	_, to := p.Carrier().(carrier.DirectCarrier)
	if !from || !to || s.alone || p.alone {
		return false
	}
	s.of.in.group.Goroutines.Go(func() { s.flow(pipe) })
	return true
}

// flow moves the bytes of a busy direction, as io.Copy does: by the kernel if there is a pipe. It
// waits in Go's poller, which is cheaper than to park for each part, and ends when nothing has moved
// for a while, or for a farewell.
func (s *tunnelSide) flow(pipe *nowait.Pipe) {
	p := s.peer()
	from, to := nowait.Reader{Socket: s.end.Socket}, nowait.Writer{Socket: p.end.Socket}
	splices := pipe == nil && s.splices()
	moved, err := true, error(nil)
	for moved && err == nil && !s.mayPart() {
		pause := bufferPause
		if pipe != nil {
			pause = s.of.pauseWithPipe()
		}
		before, until := s.sent.Load(), time.Now().Add(pause)
		s.end.Conn.SetReadDeadline(until)
		p.end.Conn.SetWriteDeadline(until)
		if pipe != nil {
			err = s.pump(pipe)
		} else {
			err = s.pumpBytes(&from, &to, splices)
		}
		moved = s.sent.Load() != before
		switch {
		case err == errMuch:
			pipe, splices, err = nowait.TakePipe(), false, nil
		case serving.IsTimeout(err):
			if err = nil; moved {
				err = s.of.touch(true)
			}
		}
	}
	s.end.Conn.SetReadDeadline(time.Time{})
	p.end.Conn.SetWriteDeadline(time.Time{})
	switch {
	case pipe == nil:
	case err == nil && pipe.Len() > 0:
		s.keep(&tunnelRest{pipe: pipe})
	default:
		pipe.Release()
	}
	if err == io.EOF {
		err = s.ended()
	}
	s.of.release(s, moved, err)
}

// pauseWithPipe returns the pause of a direction that has a pipe. Where hundreds of them are busy,
// the turn of each comes after a tenth of a second, and none must end before. But the tunnel may be
// idle for no longer than its timeouts, so the pause is a small part of them.
func (t *Tunnel) pauseWithPipe() time.Duration {
	pause := pipePause
	for _, d := range [2]time.Duration{t.in.IdleTimeout, t.in.HalfCloseTimeout} {
		if d > 0 {
			pause = min(pause, d/8)
		}
	}
	return pause
}

// pump moves bytes through a pipe. It fails with io.EOF at the end of the stream, and when the
// deadlines have passed.
func (s *tunnelSide) pump(pipe *nowait.Pipe) error {
	for {
		if pipe.Len() == 0 {
			if n, err := pipe.Fill(s.end.Socket); err == io.EOF || n == 0 && err == nil {
				return err
			} else if err != nil {
				return fmt.Errorf("tunnel: %w", err)
			}
		}
		if err := s.drain(pipe, true); err != nil {
			return err
		}
	}
}

// errMuch is the result of pumpBytes for a direction that should have a pipe.
var errMuch = errors.New("tunnel: more bytes than a buffer holds")

// pumpBytes moves bytes by read and write, which wait up to the deadlines. Its errors are those of
// pump. What the peer has not taken by then stays the rest. If the direction splices, it fails with
// errMuch when a read has filled the buffer, and nothing is left of that.
func (s *tunnelSide) pumpBytes(from, to carrier.Socket, splices bool) error {
	c := s.Carrier().(carrier.DirectCarrier)
	buf := tunnelBuffers.Get().(*tunnelBuffer)
	defer tunnelBuffers.Put(buf)
	for {
		if s.rest != nil {
			if err := s.forwardRest(to); err != nil {
				return err
			}
		}
		if s.rest != nil {
			return os.ErrDeadlineExceeded
		}
		n, err := c.ReadBy(from, buf[:])
		if n > 0 && !s.parts {
			if err := s.forward(buf[:n], true, to); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return err
		case err != nil:
			return fmt.Errorf("tunnel: %w", err)
		case n == 0:
			return os.ErrDeadlineExceeded
		case splices && n == len(buf) && s.rest == nil:
			return errMuch
		}
	}
}

// ended notes the end of the stream, and passes it on if no bytes are left before it.
func (s *tunnelSide) ended() error {
	// The peer's isDone is asked last, because done is set before CloseWrite is called: our own
	// CloseWrite ends the connection in both directions, too.
	if c, ok := s.Carrier().(carrier.DirectCarrier); ok && c.WasReset() && !s.peer().isDone() {
		return fmt.Errorf("tunnel: %w", syscall.ECONNRESET)
	}
	s.eof = true
	if s.rest == nil {
		return s.endStream()
	}
	return nil
}

// endStream passes the end of the stream on.
func (s *tunnelSide) endStream() error {
	p := s.peer()
	s.of.mu.Lock()
	before := s.done
	s.done = true
	s.of.mu.Unlock()
	if before {
		return nil // by a farewell
	}
	s.of.in.lot().Relieve()
	w := parking.HalfCloser(p.end.Conn)
	if w == nil {
		return errTunnelOver
	}
	if err := w.CloseWrite(); err != nil {
		if p.isDone() {
			return errTunnelOver // the peer has closed its connection, and needs nothing more
		}
		return fmt.Errorf("tunnel: %w", err)
	}
	return nil
}

func (s *tunnelSide) isDone() bool {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.done
}

// read reads once. It returns 0 and no error if there is nothing. err is an *unwrap.UnfitError if a
// wrapper does not say that.
func (s *tunnelSide) read(from carrier.Carrier, b []byte, c copying) (n int, err error) {
	switch c {
	case copyReady:
		return from.Read(b, carrier.ForRecord)
	case copyQuietly, copyRest:
		return from.Read(b, carrier.Impatient)
	}
	until := s.of.deadline()
	s.end.Conn.SetReadDeadline(until)
	n, err = from.Read(b, carrier.UntilUnset)
	switch {
	case !unwrap.IsUnfit(err):
	case !until.IsZero() && !time.Now().Before(until):
		err = nil // the error of a deadline, in words of its own
	default:
		err = errors.Unwrap(err)
	}
	return n, err
}

// WriteDeadline bounds a write that waits, which is not to take longer than a tunnel may be idle.
func (s *tunnelSide) WriteDeadline() time.Time { return s.of.deadline() }

// deadline returns when the tunnel will have been idle for too long, or zero.
func (t *Tunnel) deadline() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.in.idleTimeout(t.halfClosed())
	if d == 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}

// close closes the connection, for which the tunnel has no more use.
func (s *tunnelSide) close(c carrier.Carrier, armed, reset bool) {
	s.of.in.group.Log.Guard(s.end.Conn, func() error {
		if reset {
			return c.Reset(s, armed)
		}
		return c.Close(s, armed)
	})
}
