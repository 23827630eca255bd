package port

import (
	"errors"
	"fmt"
	"net"
	"runtime"
)

// WithHandle calls f with the handle of a registration, in a way that another socket of the same
// number cannot be used: a socket of package sock, or a connection, cannot be closed during the
// call. For a raw handle the backend says afterwards whether it is still the socket that was
// registered. ended reports that the registration has ended; err then says why, or is nil.
func (p *Port) WithHandle(h Socket, rec *Record, f func(Socket) error) (ended bool, err error) {
	if !p.Core.Enter() {
		return false, ErrClosed
	}
	defer p.Core.Leave()
	var s *Slot
	if h <= MaxIndex {
		s = p.Table.Lookup(uint32(h))
	}
	if s == nil || rec == nil || s.Reg.Load() != rec {
		return true, nil
	}
	switch {
	case rec.fd != nil:
		own, ok := rec.fd.Use()
		if !ok {
			return true, net.ErrClosed
		}
		defer rec.fd.Done()
		err = f(own)
	case s.word.Load()&wConn != 0:
		ended, err = p.withConn(uint32(h), f)
	default:
		if err = f(h); err != nil {
			return true, err
		}
		ended, err = p.replaced(h)
	}
	if err == nil && s.Reg.Load() != rec {
		return true, nil
	}
	return ended, err
}

// withConn calls f inside the Control of a connection.
func (p *Port) withConn(index uint32, f func(Socket) error) (ended bool, err error) {
	held := p.conns.of(index)
	if held == nil {
		return true, nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("socknotify: addresses of socket %d: connection panicked: %v",
				index, v)
		}
	}()
	closed := held.raw.Control(func(fd uintptr) { err = f(fd) })
	if errors.Is(closed, net.ErrClosed) {
		return true, net.ErrClosed
	}
	return false, errors.Join(closed, err)
}

// replaced reports whether a raw handle is not the socket any more that was registered.
func (p *Port) replaced(h Socket) (bool, error) {
	for {
		has, busy, err := p.probe(uint32(h))
		switch {
		case busy:
			runtime.Gosched() // another call is changing it
		case err != nil || !has:
			return true, net.ErrClosed
		default:
			return false, nil
		}
	}
}
