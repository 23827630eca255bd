package port

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"sync"
	"syscall"

	"github.com/socknotify/socknotify/internal/fdstate"
)

// A connTable holds the registered connections of package net (X2). It keeps them reachable, and finds them by their
// value, so that one whose descriptor is closed can still be removed.
type connTable struct {
	mu      sync.Mutex
	byConn  map[syscall.Conn]*heldConn
	byIndex map[uint32]*heldConn
}

type heldConn struct {
	conn  syscall.Conn
	raw   syscall.RawConn
	index uint32
}

func (t *connTable) lookup(conn syscall.Conn) (heldConn, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.byConn[conn]; h != nil {
		return *h, true
	}
	return heldConn{}, false
}

// of returns the connection of a registration, or nil.
func (t *connTable) of(index uint32) *heldConn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byIndex[index]
}

// hold adds the connection of a registration. The slot is locked.
func (t *connTable) hold(conn syscall.Conn, raw syscall.RawConn, index uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byConn == nil {
		t.byConn = make(map[syscall.Conn]*heldConn)
		t.byIndex = make(map[uint32]*heldConn)
	}
	if old := t.byIndex[index]; old != nil && t.byConn[old.conn] == old {
		delete(t.byConn, old.conn) // another connection for the same descriptor
	}
	h := &heldConn{conn, raw, index}
	t.byConn[conn], t.byIndex[index] = h, h
}

// release removes the connection of an ended registration. The slot is locked.
func (t *connTable) release(index uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.byIndex[index]
	if h == nil {
		return
	}
	delete(t.byIndex, index)
	if t.byConn[h.conn] == h {
		delete(t.byConn, h.conn)
	}
}

func (t *connTable) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byConn, t.byIndex = nil, nil
}

// registerConn processes an entry that names a connection. All of it happens inside Control, which keeps the descriptor
// from being closed, and so its number from being reused.
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

// runControl calls the connection's methods, which are the program's code and may panic, or end their goroutine with
// runtime.Goexit, as t.Fatal does in a fake connection.
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
	return w.raw.Control(w.control)
}

// abandon ends a call whose goroutine is ending: its callers do not run again, so the entries after this one are not
// processed, and nothing is dequeued. Close would wait for the call otherwise. No slot is locked: registerConn has flushed
// before the connection's methods were called, and so has the function that Control runs.
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

// releaseConn ends the registration of a closed connection, unless its number has been registered again.
func (p *Port) releaseConn(w *Call, held heldConn) {
	s := p.Table.Lookup(held.index)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if now := p.conns.of(held.index); now != nil && now.conn == held.conn {
		p.forget(s, held.index)
		p.Core.releaseHandle(held.index)
	}
}
