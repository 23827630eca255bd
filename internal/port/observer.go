package port

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"
)

// An Observer records what a port does; package observe has it. The port calls it only while it is
// observed.
type Observer interface {
	// Registered and Ended record that the registration of a slot is about to begin, and has ended.
	Registered(index uint32)
	Ended(index uint32, removed bool)
	// Seen returns the record of a slot's present registration, for Notified.
	Seen(index uint32) Seen
	Notified(seen Seen, at int64, index uint32, e Events, kind NoteKind)
	// Posted records a post that was dequeued.
	Posted(at int64, data uintptr)
}

// Seen is what an Observer has of a registration.
type Seen any

// Millis returns the time in Unix milliseconds. A clock advanced by a timer would be cheaper to
// read, but its timer wakes threads, with some ten system calls each time.
func Millis() int64 { return time.Now().UnixMilli() }

// WithHandle calls f with the handle of a registration, in a way that another socket of the same
// number cannot be used: a socket of package sock, or a connection, cannot be closed during the call.
// For a raw handle the backend says afterwards whether it is still the socket that was registered.
// ended reports that the registration has ended; err then says why, or is nil.
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
	case s.Word.Load()&wConn != 0:
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
			err = fmt.Errorf("socknotify: addresses of socket %d: connection panicked: %v", index, v)
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
