package sock

import "github.com/socknotify/socknotify/internal/fdstate"

// Ahead is for packages socknotify and server: what a receive into b, or a send of it, is to be given that is made
// elsewhere and not by Recv or Send. Its outcome goes to Made, or that of a receive that brought something to Took.
func (h Held) Ahead(d fdstate.Dir, b []byte) (of []byte, turn uint64) {
	s := h.socket
	if d == dirRecv || s.is(kindStream) {
		b = b[:min(len(b), maxIO)]
	}
	if d == dirRecv {
		kernelWrites(b)
	} else {
		kernelReads(b)
	}
	return b, s.fd.Turn()
}

// Took is Made for a receive of n bytes, of which there is one at least: that is what Recv would have returned.
func (h Held) Took(of []byte, turn uint64, n int) { h.socket.took(of, turn, n) }

// Made is for packages socknotify and server: what Recv, or Send, would have returned if it had made the call.
func (h Held) Made(d fdstate.Dir, of []byte, turn uint64, n int, err error) (int, error) {
	s := h.socket
	e := ioErrorOf(err)
	if d == dirRecv {
		return s.received(s.fd.Handle(), of, turn, ioCount(n), e)
	}
	if ioFailed(e) {
		return s.unsent(s.fd.Handle(), of, turn, e)
	}
	return n, nil
}
