package sock

import "github.com/socknotify/socknotify/internal/fdstate"

// Ahead is used by packages socknotify and server, which receive and send without Recv and Send. It returns the
// part of b to receive into or to send, and the generation. After the call, its result must be passed to Made, or
// to Took if at least one byte was received.
func (h Held) Ahead(d fdstate.Dir, b []byte) (of []byte, generation uint64) {
	s := h.socket
	if d == dirRecv || s.is(kindStream) {
		b = b[:min(len(b), maxIO)]
	}
	if d == dirRecv {
		kernelWrites(b)
	} else {
		kernelReads(b)
	}
	return b, s.fd.Generation()
}

// Took is Made for a successful receive of n > 0 bytes.
func (h Held) Took(of []byte, generation uint64, n int) { h.socket.recordShortRecv(of, generation, n) }

// Made returns the result that Recv or Send would have returned for the same result of the system call.
func (h Held) Made(d fdstate.Dir, of []byte, generation uint64, n int, err error) (int, error) {
	s := h.socket
	e := ioErrorOf(err)
	if d == dirRecv {
		return s.finishRecv(s.fd.Handle(), of, generation, ioCount(n), e)
	}
	if ioFailed(e) {
		return s.finishSendSlow(s.fd.Handle(), of, generation, e)
	}
	return n, nil
}
