package port

import (
	"sync"
	"syscall"
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
