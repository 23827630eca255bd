package socknotify

import (
	"errors"
	"fmt"
	"net"
	"runtime"

	"github.com/socknotify/socknotify/sock"
)

// Addresses asks the system what the socket of a registration is called. It takes a few system calls.
//
// The error is ErrNotRegistered, with net.ErrClosed where the socket was closed, if the registration is
// over: the names of another socket that has the number by now are never returned. It is ErrInvalid for a nil
// RegistrationInfo, and ErrClosed, or the system's, otherwise.
func (p *Port[K]) Addresses(r *RegistrationInfo[K]) (sock.Names, error) {
	st := &p.core.stripes[0]
	if !st.enter(p.core) {
		return sock.Names{}, ErrClosed
	}
	defer st.leave(p.core)
	if r == nil {
		return sock.Names{}, callError("Addresses", "a nil RegistrationInfo")
	}
	var s *slot
	if r.Socket <= maxIndex {
		s = p.table.lookup(uint32(r.Socket))
	}
	if s == nil || r.record == nil || s.reg.Load() != r.record {
		return sock.Names{}, over(r.Socket, nil)
	}
	names, err := p.names(s, r.record, r.Socket)
	if err == nil && s.reg.Load() != r.record {
		err = over(r.Socket, nil)
	}
	if err != nil {
		return sock.Names{}, err
	}
	return names, nil
}

func over(h Socket, why error) error {
	return &addressError{h, why}
}

// An addressError says why a socket has no addresses.
type addressError struct {
	socket Socket
	why    error // or nil
}

func (e *addressError) Error() string {
	s := fmt.Sprintf("socknotify: addresses of socket %d: %v", e.socket, ErrNotRegistered)
	if e.why != nil {
		s += ": " + e.why.Error()
	}
	return s
}

func (e *addressError) Unwrap() []error {
	if e.why == nil {
		return []error{ErrNotRegistered}
	}
	return []error{ErrNotRegistered, e.why}
}

// names asks for the names in a way that no other socket of the same number can answer: a tied socket or a
// connection cannot be closed meanwhile, and of a raw handle the kernel tells afterwards whether it is still
// the one that was registered.
func (p *port) names(s *slot, rec *record, h Socket) (names sock.Names, err error) {
	if t := rec.tie; t != nil {
		own, ok := t.Use()
		if !ok {
			return names, over(h, net.ErrClosed)
		}
		defer t.Done()
		return sock.NamesOf(own)
	}
	if s.word.Load()&wConn != 0 {
		p.conns.mu.Lock()
		held := p.conns.byIndex[uint32(h)]
		p.conns.mu.Unlock()
		if held == nil {
			return names, over(h, nil)
		}
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("socknotify: addresses of socket %d: connection panicked: %v", h, v)
			}
		}()
		cerr := held.raw.Control(func(fd uintptr) { names, err = sock.NamesOf(fd) })
		if errors.Is(cerr, net.ErrClosed) {
			cerr = over(h, net.ErrClosed)
		}
		return names, errors.Join(cerr, err)
	}
	if names, err = sock.NamesOf(h); err != nil {
		return names, over(h, err)
	}
	for {
		has, busy, err := p.probe(uint32(h))
		switch {
		case busy:
			runtime.Gosched() // somebody is at it, and soon done
			continue
		case err != nil || !has:
			return names, over(h, net.ErrClosed)
		}
		return names, nil
	}
}
