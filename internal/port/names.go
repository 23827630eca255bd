package port

import (
	"errors"
	"fmt"
	"net"
	"runtime"

	"github.com/socknotify/socknotify/sock"
)

// Addresses returns the addresses of a registration's socket. The error is ErrNotRegistered if h has another record, or
// none.
func (p *Port) Addresses(h Socket, rec *Record) (sock.Names, error) {
	st := &p.Core.Stripes[0]
	if !st.Enter(p.Core) {
		return sock.Names{}, ErrClosed
	}
	defer st.Leave(p.Core)
	var s *Slot
	if h <= MaxIndex {
		s = p.Table.Lookup(uint32(h))
	}
	if s == nil || rec == nil || s.Reg.Load() != rec {
		return sock.Names{}, over(h, nil)
	}
	names, err := p.names(s, rec, h)
	if err == nil && s.Reg.Load() != rec {
		err = over(h, nil)
	}
	if err != nil {
		return sock.Names{}, err
	}
	return names, nil
}

// names asks for the addresses in a way that another socket of the same number cannot answer. A socket of package sock, or
// a connection, cannot be closed during the call. For a raw handle the backend says afterwards whether it is still the
// socket that was registered.
func (p *Port) names(s *Slot, rec *Record, h Socket) (names sock.Names, err error) {
	if t := rec.fd; t != nil {
		own, ok := t.Use()
		if !ok {
			return names, over(h, net.ErrClosed)
		}
		defer t.Done()
		return sock.NamesOf(own)
	}
	if s.Word.Load()&wConn != 0 {
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
		has, busy, err := p.Probe(uint32(h))
		switch {
		case busy:
			runtime.Gosched() // another call is changing it
			continue
		case err != nil || !has:
			return names, over(h, net.ErrClosed)
		}
		return names, nil
	}
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
