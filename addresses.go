package socknotify

import (
	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/sock"
)

// Addresses asks the system what the socket of a registration is called. It takes a few system calls.
//
// The error is ErrNotRegistered, with net.ErrClosed where the socket was closed, if the registration is
// over: the names of another socket that has the number by now are never returned. It is ErrInvalid for a nil
// RegistrationInfo, and ErrClosed, or the system's, otherwise.
func (p *Port[K]) Addresses(r *RegistrationInfo[K]) (sock.Names, error) {
	st := &p.port.Core.Stripes[0]
	if !st.Enter(p.port.Core) {
		return sock.Names{}, ErrClosed
	}
	defer st.Leave(p.port.Core)
	if r == nil {
		return sock.Names{}, port.CallError("Addresses", "a nil RegistrationInfo")
	}
	var s *port.Slot
	if r.Socket <= port.MaxIndex {
		s = p.port.Table.Lookup(uint32(r.Socket))
	}
	if s == nil || r.record == nil || s.Reg.Load() != r.record {
		return sock.Names{}, port.Over(r.Socket, nil)
	}
	names, err := p.port.Names(s, r.record, r.Socket)
	if err == nil && s.Reg.Load() != r.record {
		err = port.Over(r.Socket, nil)
	}
	if err != nil {
		return sock.Names{}, err
	}
	return names, nil
}
