package server

import (
	"net"
)

// Write encrypts as many bytes as the write queue has room for, and sends them. crypto/tls keeps every error of a write,
// so the room is checked before it encrypts.
func (t *tlsConn) Write(b []byte) (n int, err error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	for {
		k, err := t.room(len(b) - n)
		if err != nil || n == len(b) {
			return n, err
		}
		t.mu.Lock()
		t.plain += k
		t.mu.Unlock()
		if k, err = t.tls.Write(b[n : n+k]); err != nil {
			t.conn.fail(err)
			return n, err
		}
		if err := t.push(); err != nil {
			return n, err
		}
		n += k
	}
}

// room returns how many of n bytes can be encrypted now: at least one, unless n is 0 or there is an error.
func (t *tlsConn) room(n int) (int, error) {
	c := t.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.sendable(); err != nil {
		return 0, err
	}
	queued := len(c.extra.queue) - c.extra.head
	if t.total-int64(queued) >= t.mark {
		t.before, t.beyond, t.mark = t.beyond, 0, t.total
	}
	if queued == 0 {
		t.before, t.beyond = 0, 0
	}
	k := min(n, tlsChunk, c.server().writeQueue()-max(queued-t.before-t.beyond, 0))
	if k <= 0 && n > 0 {
		c.set(wWritable)
		return 0, ErrQueueFull
	}
	return k, nil
}

// sendable returns an error if nothing can be sent any more. The lock is held.
func (c *conn) sendable() error {
	word := c.word.Load()
	switch {
	case word&wHijacked != 0:
		return errHijacked
	case word&(wOver|wShut) != 0, c.extra != nil && c.extra.shut:
		return net.ErrClosed
	}
	return nil
}

// push sends the encrypted bytes in out. A reader calls it for answers to the peer, possibly while another goroutine is in
// Write. Then push may send a part of what Write encrypts, and does not know how many of its bytes are the handler's. It
// counts as many as possible as the handler's; the rest is counted with the bytes that are sent next.
func (t *tlsConn) push() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.out) == 0 {
		return nil
	}
	c := t.conn
	n := len(t.out)
	plain := min(n, t.plain)
	_, err := c.send(t.out)
	t.sent()
	t.plain -= plain
	if err == net.ErrClosed && plain == 0 && c.word.Load()&wOver == 0 {
		return nil // an answer to a key update of the peer, after CloseWrite
	}
	if err != nil {
		t.lost = true
		return err
	}
	c.mu.Lock()
	t.total += int64(n)
	t.beyond += n - plain
	c.mu.Unlock()
	return nil
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
	c.mu.Unlock()
	if err != nil {
		return err
	}
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
		c.socket().Send(t.out)
	}
	t.sent()
}
