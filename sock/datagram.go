package sock

import "net/netip"

// RecvFrom receives one datagram and returns its length and sender. If the datagram is longer than b, the rest is lost.
func (s *Socket) RecvFrom(b []byte) (int, netip.AddrPort, error) {
	h, ok := s.fd.Use()
	if !ok {
		return 0, netip.AddrPort{}, closed("recvfrom")
	}
	defer s.fd.Done()
	generation := s.fd.Generation()
	n, from, err := sysRecvFrom(h, b)
	n, err = s.finish("recvfrom", h, dirRecv, generation, n, err)
	return n, from, err
}

// SendTo sends one datagram to an address.
func (s *Socket) SendTo(b []byte, to netip.AddrPort) error {
	h, ok := s.fd.Use()
	if !ok {
		return closed("sendto")
	}
	defer s.fd.Done()
	generation := s.fd.Generation()
	_, err := s.finish("sendto", h, dirSend, generation, 0, sysSendTo(h, b, to))
	return err
}

// A Message is one datagram of a batch.
type Message struct {
	Buf  []byte         // the bytes to send, or the buffer to receive into
	N    int            // the number of bytes received or sent
	Addr netip.AddrPort // the sender or the destination; the zero AddrPort sends to the connected peer
	// Local is the address of this machine that a datagram came to (see SetPacketInfo), or leaves from. If it is the zero
	// Addr, a datagram leaves from the address that the system chooses.
	Local netip.Addr
}

// SetPacketInfo selects whether RecvBatch sets Message.Local, so that a socket that is bound to a wildcard address can answer
// from the address that was asked. The zero Addr remains where no answer can leave from the address, such as a multicast one.
// A socket that is bound to one address needs no SetPacketInfo. It fails with errors.ErrUnsupported if the system cannot.
func (s *Socket) SetPacketInfo(on bool) error {
	return s.do("setsockopt", func(h uintptr) error {
		err := sysPacketInfo(h, on)
		if err == nil {
			s.fd.ChangeKind(kindInfo, on)
		}
		return err
	})
}

// MaxBatch is the maximum number of messages that one call of RecvBatch or SendBatch handles.
const MaxBatch = 64

// RecvBatch receives up to len(msgs) datagrams, but at most MaxBatch. It returns the number of datagrams received, or
// ErrWouldBlock if there is none. On Linux it needs one system call (recvmmsg).
func (s *Socket) RecvBatch(msgs []Message) (int, error) {
	h, ok := s.fd.Use()
	if !ok {
		return 0, closed("recvmmsg")
	}
	defer s.fd.Done()
	if len(msgs) == 0 {
		return 0, nil
	}
	generation := s.fd.Generation()
	n, err := sysRecvBatch(h, msgs[:min(len(msgs), MaxBatch)], s.is(kindInfo))
	return s.finish("recvmmsg", h, dirRecv, generation, n, err)
}

// SendBatch sends up to len(msgs) datagrams, but at most MaxBatch. It returns the number of datagrams sent. If none was
// sent, it returns the error of the first one, such as ErrWouldBlock. On Linux it needs one system call (sendmmsg).
func (s *Socket) SendBatch(msgs []Message) (int, error) {
	h, ok := s.fd.Use()
	if !ok {
		return 0, closed("sendmmsg")
	}
	defer s.fd.Done()
	if len(msgs) == 0 {
		return 0, nil
	}
	generation := s.fd.Generation()
	n, err := sysSendBatch(h, msgs[:min(len(msgs), MaxBatch)])
	return s.finish("sendmmsg", h, dirSend, generation, n, err)
}
