package tunnel

import (
	"time"

	"github.com/socknotify/socknotify/internal/serving/clock"
)

// Farewell ends the tunnel in order. Each side is sent the last bytes that are for it, and the end of
// the stream, unless bytes to it are under way: bytes that it has not taken, and with
// Tunnels.TrackFrames a part of a frame. What the other side sends to it after that is dropped. When
// both sides have ended their streams, or after the delay, the connections are closed, and OnClose gets
// nil, or the error of a connection that has failed before. With nil a side is sent nothing before the
// delay is over. Farewell does not wait, and may be called more than once.
func (t *Tunnel) Farewell(toA, toB []byte, delay time.Duration) {
	t.b.part(toA)
	t.a.part(toB)
	if delay <= 0 {
		t.end(errTunnelOver)
	} else {
		t.endAfter(delay)
	}
}

// endAfter ends the tunnel in order after a time, if it has not ended by then.
func (t *Tunnel) endAfter(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life != tunnelOpen {
		return
	}
	if m := t.extra(); m.timer != nil {
		m.timer.Reset(d)
	} else {
		m.timer = clock.Current().AfterFunc(d, func() { t.end(errTunnelOver) })
	}
}

// part sends the last bytes to the peer of s, and the end of the stream.
func (s *tunnelSide) part(b []byte) {
	t := s.of
	if b == nil || !s.claim(b) {
		return
	}
	t.in.lot().Relieve()
	err := error(nil)
	defer func() { t.release(s, true, err) }()
	err = t.in.group.Log.Guard(s.end.Conn, func() error {
		if err := s.forward(b, true, nil); err != nil {
			return err
		}
		s.parts = true
		if s.rest != nil {
			return nil
		}
		if err := s.endStream(); err != errTunnelOver {
			return err
		}
		return nil // the peer has no CloseWrite method, and the other side may get its last bytes, too
	})
}

// claim begins to copy the direction, if nothing of it is under way. It reports whether it has. If a
// goroutine copies the direction, and its frames are counted, that one is left the last bytes.
func (s *tunnelSide) claim(last []byte) bool {
	t := s.of
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life != tunnelOpen || s.done {
		return false
	}
	f := s.frames()
	if s.copying {
		if f != nil {
			s.leave(last)
		}
		return false
	}
	s.copying = !s.eof && !s.parts && s.rest == nil && (f == nil || f.between())
	return s.copying
}

// A lastBytes has the last bytes for the peers of a and of b, which are left to the goroutines that copy
// these directions.
type lastBytes struct{ ofA, ofB []byte }

func (l *lastBytes) of(s *tunnelSide) *[]byte {
	if s == &s.of.a {
		return &l.ofA
	}
	return &l.ofB
}

// leave leaves the goroutine that copies the direction the last bytes, unless it has some. The caller
// holds t.mu.
func (s *tunnelSide) leave(last []byte) {
	m := s.of.extra()
	if m.last == nil {
		m.last = new(lastBytes)
	}
	if left := m.last.of(s); *left == nil {
		*left = last
	}
}

// takeLast takes these bytes, if they can be sent now, and returns them, or nil. The caller holds t.mu,
// and no goroutine copies the direction.
func (s *tunnelSide) takeLast() (last []byte) {
	if m := s.of.more.Load(); m != nil && m.last != nil && s.rest == nil && s.frames().between() {
		left := m.last.of(s)
		last, *left = *left, nil
	}
	return last
}

// mayPart reports whether there are such bytes, and they can be sent now. The goroutine that copies the
// direction asks.
func (s *tunnelSide) mayPart() bool {
	f := s.frames()
	if f == nil || !f.between() || s.rest != nil {
		return false
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	m := s.of.more.Load()
	return m.last != nil && *m.last.of(s) != nil
}

// frames finds the ends of the frames of WebSocket in a direction (RFC 6455, 5.2).
type frames struct {
	left   uint64 // of the payload and its mask; while a header is incomplete, its length so far
	header uint8  // bytes of the length that are missing, after the first two bytes of a header
	begun  bool   // the first byte of a header was seen
	masked bool
}

// between reports whether the bytes so far end with a frame.
func (f *frames) between() bool { return f.left == 0 && f.header == 0 && !f.begun }

// skip goes on by the bytes.
func (f *frames) skip(b []byte) {
	for len(b) > 0 {
		if f.header == 0 && f.left > 0 {
			n := min(f.left, uint64(len(b)))
			f.left -= n
			b = b[n:]
			continue
		}
		f.next(b[0])
		b = b[1:]
	}
}

// next goes on by a byte of a header.
func (f *frames) next(b byte) {
	switch {
	case f.header > 0:
		f.left = f.left<<8 | uint64(b)
		f.header--
	case !f.begun:
		f.begun = true
		return
	default:
		f.begun, f.masked = false, b&0x80 != 0
		switch b &= 0x7f; b {
		case 126:
			f.header = 2
		case 127:
			f.header = 8
		default:
			f.left = uint64(b)
		}
	}
	if f.header == 0 && f.masked {
		f.left += 4
	}
}

// frames returns those of the direction that begins at s, or nil if they are not counted.
func (s *tunnelSide) frames() *frames {
	m := s.of.more.Load()
	switch {
	case m == nil || !m.counts:
		return nil
	case s == &s.of.a:
		return &m.frames[0]
	}
	return &m.frames[1]
}

// track counts the frames in bytes that the peer has taken.
func (s *tunnelSide) track(b []byte) {
	if f := s.frames(); f != nil {
		f.skip(b)
	}
}
