package port

import (
	"errors"
	"fmt"
	"net"
	"reflect"

	"github.com/socknotify/socknotify/internal/kernel/fdstate"
)

// Register processes one entry.
func (p *Port) Register(w *Call, r *Entry) {
	*r.Result = nil
	if r.Op != OpEnable || !sound(r.Filter, r.Trigger) {
		if err := r.check(); err != nil {
			p.fail(r, r.Handle, ErrInvalid, err)
			return
		}
	}
	if r.Op == OpEnable && p.checksKeys {
		if err := p.typed.CheckKey(r.Key); err != nil {
			p.fail(r, r.Handle, ErrInvalid, err)
			return
		}
	}
	switch {
	case r.Op == OpNone:
	case r.Conn != nil:
		p.registerConn(w, r)
	case r.FD != nil:
		p.registerSock(w, r)
	case r.Handle == 0:
		// Most likely Conn was forgotten. On Unix 0 is the standard input.
		p.fail(r, NoSocket, ErrInvalid, Invalid("Conn", "nil, and Handle is 0", nil))
	default:
		p.apply(w, r, r.Handle)
	}
}

// registerSock processes an entry that names a socket of package sock.
func (p *Port) registerSock(w *Call, r *Entry) {
	t := r.FD
	h, ok := t.Use()
	if !ok {
		kind := ErrBadSocket
		if r.Op != OpEnable {
			kind = ErrNotRegistered // its Close has ended the registration
		}
		p.fail(r, NoSocket, kind, net.ErrClosed)
		return
	}
	p.apply(w, r, h)
	if w.used = append(w.used, t); len(w.used) == batchSize {
		p.Complete(w)
	}
}

// Deregister removes a registration and returns its record, which has the key. No EventRemove is
// queued.
func (p *Port) Deregister(r *Entry) (*Record, error) {
	w := p.Begin()
	if w == nil {
		return nil, ErrClosed
	}
	w.deregisters = true
	p.Register(w, r)
	p.Complete(w)
	rec := w.deregistered
	w.deregisters, w.deregistered = false, nil
	p.End(w)
	return rec, *r.Result
}

// registerConn processes an entry that names a connection. All of it happens inside Control, which
// keeps the descriptor from being closed, and so its number from being reused.
func (p *Port) registerConn(w *Call, r *Entry) {
	// Nearly all are pointers, which are comparable. Comparable would allocate.
	if reflect.TypeOf(r.Conn).Kind() != reflect.Pointer && !reflect.ValueOf(r.Conn).Comparable() {
		p.fail(r, NoSocket, ErrInvalid, Invalid("Conn", "its type is not comparable", nil))
		return
	}
	p.flush(w)
	held, isHeld := p.conns.lookup(r.Conn)
	w.reg, w.raw, w.held, w.inside = *r, held.raw, isHeld, false
	err := w.runControl()
	inside, fd := w.inside, fdstate.Of(w.raw, nil)
	w.reg, w.raw, w.inside = Entry{}, nil, false
	if fd != nil { // the connection embeds a sock.Socket
		r.Conn, r.FD = nil, fd
		p.registerSock(w, r)
		return
	}
	if inside {
		return // the entry has its Result
	}
	if err == nil {
		err = errors.New("the connection's Control did not run its function")
	}
	kind := ErrBadSocket
	if errors.Is(err, net.ErrClosed) {
		if isHeld {
			p.releaseConn(w, held)
		}
		if r.Op != OpEnable {
			kind = ErrNotRegistered
		}
	}
	p.fail(r, NoSocket, kind, err)
}

// runControl calls the connection's methods, which are the program's code and may panic, or end
// their goroutine with runtime.Goexit, as t.Fatal does in a fake connection.
func (w *Call) runControl() (err error) {
	returned := false
	defer func() {
		switch v := recover(); {
		case v != nil:
			err = fmt.Errorf("connection panicked: %v", v)
		case !returned:
			w.abandon()
		}
	}()
	err = w.callControl()
	returned = true
	return err
}

func (w *Call) callControl() (err error) {
	if w.raw == nil {
		if w.raw, err = w.reg.Conn.SyscallConn(); err != nil {
			return err
		}
		if fdstate.Of(w.raw, nil) != nil {
			return nil
		}
	}
	if w.control == nil {
		w.control = func(fd uintptr) {
			w.inside = true
			w.port.apply(w, &w.reg, fd)
			w.port.flush(w)
		}
	}
	return w.raw.Control(w.control)
}

// abandon ends a call whose goroutine is ending: its callers do not run again, so the entries after
// this one are not processed, and nothing is dequeued. Close would wait for the call otherwise. No
// slot is locked: registerConn has flushed before the connection's methods were called, and so has
// the function that Control runs.
func (w *Call) abandon() {
	p := w.port
	if !w.inside {
		p.fail(&w.reg, NoSocket, ErrBadSocket, errors.New("connection ended its goroutine"))
	}
	w.reg, w.raw, w.inside = Entry{}, nil, false
	p.Complete(w)
	w.deregisters, w.deregistered = false, nil
	p.wakeForQueue()
	p.End(w)
}

// releaseConn ends the registration of a closed connection, unless its number has been registered
// again.
func (p *Port) releaseConn(w *Call, held heldConn) {
	s := p.Table.Lookup(held.index)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if now := p.conns.of(held.index); now != nil && now.conn == held.conn {
		p.end(s, held.index)
	}
}
