package server

import (
	"net"
)

// Write encrypts and sends, or refuses all before anything is encrypted, because crypto/tls keeps every error of a write.
func (t *tlsConn) Write(b []byte) (n int, err error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	c := t.conn
	c.mu.Lock()
	err = c.mayWrite()
	if err == nil {
		err = c.accept(len(b), nil)
	}
	behind := err == nil && c.writeBehind(b)
	c.mu.Unlock()
	switch {
	case err != nil:
		return 0, err
	case behind:
		return len(b), nil
	}
	return t.encrypt(b)
}

// encrypt encrypts and sends. writing is held.
func (t *tlsConn) encrypt(b []byte) (n int, err error) {
	for n < len(b) {
		k := min(len(b)-n, tlsChunk)
		if _, err := t.tls.Write(b[n : n+k]); err != nil {
			t.conn.fail(err)
			return n, err
		}
		if err := t.push(); err != nil {
			return n, err
		}
		n += k
	}
	return n, err
}

// push sends the encrypted bytes in out. A reader calls it for answers to the peer, possibly while another goroutine is in
// Write; then push may send a part of what Write encrypts.
func (t *tlsConn) push() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.out) == 0 {
		return nil
	}
	c := t.conn
	_, err := c.send(t.out)
	t.sent()
	if err == net.ErrClosed && c.word.Load()&wOver == 0 {
		return nil // an answer to a key update of the peer, after CloseWrite
	}
	t.lost = t.lost || err != nil
	return err
}

// sent empties out. The lock is held.
func (t *tlsConn) sent() {
	if t.outs != nil {
		t.conn.server().tlsBuffers.Put(t.outs)
	}
	t.out, t.outs = nil, nil
}

// CloseWrite sends a close_notify, and ends the stream below after it.
func (t *tlsConn) CloseWrite() error {
	if err := t.closeNotify(); err != nil {
		return err
	}
	return t.conn.shut()
}

// closeNotify sends a close_notify before the stream ends.
func (t *tlsConn) closeNotify() error {
	c := t.conn
	t.writing.Lock()
	defer t.writing.Unlock()
	c.mu.Lock()
	err := c.sendable()
	later := err == nil && c.feeds()
	if later {
		c.extra.notify = true
	}
	c.mu.Unlock()
	if err != nil || later {
		return err
	}
	return t.notifyNow()
}

// notify sends a close_notify after the last source.
func (t *tlsConn) notify() error {
	t.writing.Lock()
	defer t.writing.Unlock()
	return t.notifyNow()
}

// notifyNow sends a close_notify. writing is held.
func (t *tlsConn) notifyNow() error {
	t.tls.CloseWrite() // it fails if the connection has failed before, or the handshake is not done
	return t.push()
}

// sendCloseNotify sends a close_notify on a dead connection that was not ended by Close, if that is possible at once.
func (t *tlsConn) sendCloseNotify() {
	c := t.conn
	t.writing.Lock()
	defer t.writing.Unlock()
	if c.word.Load()&(wReset|wOut|wShut|wHandshake|wHijacked) != 0 || t.nc != nil {
		return
	}
	t.tls.CloseWrite()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.out) > 0 && !t.lost {
		n, _ := c.socket().Send(t.out)
		c.server().traffic.sent(n)
	}
	t.sent()
}
