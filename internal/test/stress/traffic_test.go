//go:build unix

package stress

import (
	"io"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/test/sockettest"
	"github.com/socknotify/socknotify/sock"
)

// What receiving from an end came to.
type outcome int

const (
	some    outcome = iota // data, perhaps with more behind it
	drained                // the last receive would have blocked
	ended                  // end of stream, or an abort that is allowed
	wrong                  // the stress test has failed
)

// receive takes a chunk, or all there is, and compares it.
func (s *stressTest) receive(e *end, b []byte, rng *rand.Rand) outcome {
	all := e.pair.edge || rng.IntN(2) == 0
	size := 1 + rng.IntN(len(b))
	for {
		n, err := e.recvSome(b[:size])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN, err == sock.ErrWouldBlock:
			return drained
		case err == io.EOF:
			return s.endOfStream(e)
		case err != nil:
			if !e.pair.aborted.Load() {
				return s.fail("receive: %v; %v; other end: %v", err, e, e.other)
			}
			return ended
		}
		if at := matches(b[:n], e.other.id, e.recv); at < n {
			return s.fail("byte %d is not the stream's; %v; other end: %v", e.recv+uint64(at), e, e.other)
		}
		e.recv += uint64(n)
		e.received.Store(e.recv)
		s.bytes.Add(uint64(n))
		if !all {
			return some
		}
	}
}

func (e *end) recvSome(b []byte) (n int, err error) {
	if e.pair.bySock {
		return e.sock.Recv(b)
	}
	if n, _, err = unix.Recvfrom(e.fd, b, 0); n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// endOfStream makes sure that nothing was lost.
func (s *stressTest) endOfStream(e *end) outcome {
	e.other.mu.Lock()
	sent, shut := e.other.sent, e.other.shut
	e.other.mu.Unlock()
	if (!shut || sent != e.recv) && !e.pair.aborted.Load() {
		return s.fail("end of stream after %d of %d bytes, shut %v; %v; other end: %v", e.recv, sent, shut, e, e.other)
	}
	return ended
}

// send sends up to n bytes of the end's stream, and reports whether it would have blocked. The lock of
// sending is held.
func (e *end) send(n int, b []byte, urgent bool) (blocked bool) {
	if e.shut || e.fd < 0 {
		return false
	}
	b = b[:n]
	fill(b, e.id, e.sent)
	flags := 0
	if urgent && e.pair.tcp {
		flags = unix.MSG_OOB
	}
	var err error
	if e.pair.bySock && flags == 0 {
		n, err = e.sock.Send(b)
	} else {
		n, err = unix.SendmsgN(e.fd, b, nil, nil, flags)
	}
	if n > 0 {
		e.sent += uint64(n)
	}
	return err == unix.EAGAIN || err == sock.ErrWouldBlock
}

// reply sends something, and sometimes more than fits. It reports whether the last send would have
// blocked.
func (s *stressTest) reply(e *end, b []byte, rng *rand.Rand) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.blocked = false
	if s.stopping.Load() {
		return
	}
	times := 1
	if rng.IntN(32) == 0 {
		times = 64
	}
	for range times {
		if e.blocked = e.send(1+rng.IntN(len(b)), b, rng.IntN(64) == 0); e.blocked {
			return
		}
	}
}

// shutdown sends no more.
func (e *end) shutdown() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.shut {
		e.shut, e.blocked = true, false
		_ = unix.Shutdown(e.fd, unix.SHUT_WR) // ENOTCONN after an abort
	}
}

// close closes an end, and may leave a duplicate that keeps the socket alive.
func (s *stressTest) close(e *end, keep bool) {
	e.mu.Lock()
	fd := e.fd
	e.fd, e.shut = -1, true
	if keep {
		if dup, err := sockettest.Dup(uintptr(fd), 0); err == nil {
			s.keep(dup)
		}
	}
	if e.pair.bySock {
		e.sock.Close()
	} else {
		unix.Close(fd)
	}
	e.mu.Unlock()
	e.gone.Store(true)
}

// keep holds a duplicate for a while.
func (s *stressTest) keep(fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, fd)
	if len(s.kept) > 64 {
		unix.Close(s.kept[0])
		s.kept = s.kept[1:]
	}
}

func (s *stressTest) dropKept() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, fd := range s.kept {
		unix.Close(fd)
	}
	s.kept = nil
}

// abort marks a connection whose bytes need not arrive any more.
func (e *end) abort(reset bool) {
	e.pair.aborted.Store(true)
	if reset {
		_ = unix.SetsockoptLinger(e.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
}
