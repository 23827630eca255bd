package port

import (
	"errors"
	"fmt"
	"net"
	"runtime"

	"github.com/socknotify/socknotify/sock"
)

// Names asks for the names in a way that no other socket of the same number can answer: a tied socket or a
// connection cannot be closed meanwhile, and of a raw handle the kernel tells afterwards whether it is still
// the one that was registered.
func (p *Port) Names(s *Slot, rec *Record, h Socket) (names sock.Names, err error) {
	if t := rec.tie; t != nil {
		own, ok := t.Use()
		if !ok {
			return names, Over(h, net.ErrClosed)
		}
		defer t.Done()
		return sock.NamesOf(own)
	}
	if s.Word.Load()&wConn != 0 {
		p.conns.mu.Lock()
		held := p.conns.byIndex[uint32(h)]
		p.conns.mu.Unlock()
		if held == nil {
			return names, Over(h, nil)
		}
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("socknotify: addresses of socket %d: connection panicked: %v", h, v)
			}
		}()
		cerr := held.raw.Control(func(fd uintptr) { names, err = sock.NamesOf(fd) })
		if errors.Is(cerr, net.ErrClosed) {
			cerr = Over(h, net.ErrClosed)
		}
		return names, errors.Join(cerr, err)
	}
	if names, err = sock.NamesOf(h); err != nil {
		return names, Over(h, err)
	}
	for {
		has, busy, err := p.Probe(uint32(h))
		switch {
		case busy:
			runtime.Gosched() // somebody is at it, and soon done
			continue
		case err != nil || !has:
			return names, Over(h, net.ErrClosed)
		}
		return names, nil
	}
}

func Over(h Socket, why error) error {
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
