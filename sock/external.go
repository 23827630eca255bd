package sock

// Ahead is used by ports, which make several receives and sends with one system call. It returns the part of b to
// receive into or to send, and the generation. After the call, its result must be passed to Made.
func (h Held) Ahead(send bool, b []byte) (of []byte, generation uint64) {
	s := h.socket
	if !send || s.is(kindStream) {
		b = b[:min(len(b), maxIO)]
	}
	if send {
		kernelReads(b)
	} else {
		kernelWrites(b)
	}
	return b, s.fd.Generation()
}

// Made returns the result that Recv or Send would have returned for the same result of the system call.
func (h Held) Made(send bool, of []byte, generation uint64, n int, err error) (int, error) {
	s := h.socket
	e := ioErrorOf(err)
	if !send {
		return s.finishRecv(s.fd.Handle(), of, generation, ioCount(n), e)
	}
	if ioFailed(e) {
		return s.finishSendSlow(s.fd.Handle(), of, generation, e)
	}
	return n, nil
}
