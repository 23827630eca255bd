package sock

import (
	"net/netip"
)

// RecvFrom receives one datagram and tells who sent it. What does not fit into b is lost.
func (s *Socket) RecvFrom(b []byte) (int, netip.AddrPort, error) {
	h, ok := s.fd.Use()
	if !ok {
		return 0, netip.AddrPort{}, closed("recvfrom")
	}
	defer s.fd.Done()
	turn := s.fd.Turn()
	n, from, err := sysRecvFrom(h, b)
	switch {
	case err == ErrWouldBlock:
		s.fd.Blocked(dirRecv, turn)
		return 0, from, err
	case err != nil:
		return 0, from, &Error{"recvfrom", h, err}
	}
	return n, from, nil
}

// SendTo sends one datagram.
func (s *Socket) SendTo(b []byte, to netip.AddrPort) error {
	h, ok := s.fd.Use()
	if !ok {
		return closed("sendto")
	}
	defer s.fd.Done()
	turn := s.fd.Turn()
	_, err := s.sent("sendto", h, turn, 0, sysSendTo(h, b, to))
	return err
}

// A Message is one datagram of a batch.
type Message struct {
	Buf  []byte         // to send, or to receive into
	N    int            // how much of Buf was received or sent
	Addr netip.AddrPort // who sent it, or who is to get it; the zero AddrPort sends to the connected peer
}

// MaxBatch is how many messages RecvBatch and SendBatch take at most in one call.
const MaxBatch = 64

// RecvBatch receives up to len(msgs) datagrams, MaxBatch at most, and returns how many; in one system call
// where there is one for it (recvmmsg). ErrWouldBlock is for none at all.
func (s *Socket) RecvBatch(msgs []Message) (int, error) {
	h, ok := s.fd.Use()
	if !ok {
		return 0, closed("recvmmsg")
	}
	defer s.fd.Done()
	if len(msgs) == 0 {
		return 0, nil
	}
	turn := s.fd.Turn()
	n, err := sysRecvBatch(h, msgs[:min(len(msgs), MaxBatch)])
	switch {
	case err == ErrWouldBlock:
		s.fd.Blocked(dirRecv, turn)
		return 0, err
	case err != nil:
		return 0, &Error{"recvmmsg", h, err}
	}
	return n, nil
}

// SendBatch sends up to len(msgs) datagrams, MaxBatch at most, and returns how many the system took; in one
// system call where there is one for it (sendmmsg). An error is of the first that was not sent;
// ErrWouldBlock is for none at all.
func (s *Socket) SendBatch(msgs []Message) (int, error) {
	h, ok := s.fd.Use()
	if !ok {
		return 0, closed("sendmmsg")
	}
	defer s.fd.Done()
	if len(msgs) == 0 {
		return 0, nil
	}
	turn := s.fd.Turn()
	n, err := sysSendBatch(h, msgs[:min(len(msgs), MaxBatch)])
	return s.sent("sendmmsg", h, turn, n, err)
}
