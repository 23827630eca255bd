package conn

import (
	"cmp"
	"crypto/tls"
	"io"
	"net"

	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
	"github.com/socknotify/socknotify/sock"
)

// A tlsConn is the TLS of a connection. A tlsStack makes the handshake, and then the connection is
// taken over from it, if that is possible: its records are opened from the buffer that they were
// received in, and made where they are sent from. While it is idle, nothing is kept but this, and
// the keys and the state that it points to; its size counts.
//
// Who does the TLS changes as follows, with the locks of lockAll and the connection's held:
//
//	                       stack   its hs   its nc   its tls       pump
//	handshake              set     set      nil      of crypto/tls empty
//	taken over             nil     -        -        -             in use
//	  and hijacked         set     nil      set      a pump's      empty
//	kept by crypto/tls     set     nil      nil      of crypto/tls empty
//	  and hijacked         set     nil      set      of crypto/tls empty
//
// Locks are acquired in this order: the pump's for receiving, the stack's, the connection's, which
// is the pump's for sending.
type tlsConn struct {
	link
	conn   *Conn
	stack  *tlsStack
	agreed tlsrecord.State
	pump   tlsrecord.Pump
}

// secured returns the TLS of a connection that has it.
func (c *Conn) secured() *tlsConn { return c.link.tls.(*tlsConn) }

// takeOver ends the stack after the handshake, unless crypto/tls keeps the connection.
func (t *tlsConn) takeOver() {
	s, c := t.stack, t.conn
	defer t.lockAll()()
	c.mu.Lock()
	defer c.mu.Unlock()
	more, _ := s.ahead()
	if t.detach() {
		t.pump.Feed(s.first, tlsBuffers)
		more = t.pump.Arrived()
	}
	c.extra.opening = nil
	c.dropExtra()
	c.setMore(more)
}

// detach takes the TLS over from the stack and ends that, unless crypto/tls does it. The locks are
// held.
func (t *tlsConn) detach() bool {
	state, ok := t.stack.tls.Detach(&t.pump)
	if ok {
		t.stack.left = true
		t.agreed, t.stack = state, nil
	}
	return ok
}

// hijack returns the connection for a hijacker. The locks are held.
func (t *tlsConn) hijack(h *hijacked) net.Conn {
	if t.stack == nil {
		t.stack = &tlsStack{conn: t.conn, tls: tlsrecord.Attach(h, &t.pump, t.agreed)}
		t.agreed = tlsrecord.State{}
	}
	s := t.stack
	s.nc = h
	if len(h.rest) > 0 {
		return &hijackedTLS{s.tls, h}
	}
	if stock := s.tls.Stock(); stock != nil {
		return stock
	}
	return s.tls
}

// resume takes the connection back from a hijacker. If that is still using it, the connection fails
// when it is next used. The locks are held.
func (t *tlsConn) resume() {
	t.stack.nc = nil
	t.detach()
}

// lockOut acquires the lock of the sending side: that of the stack, which it returns, or, if there
// is none, the connection's.
func (t *tlsConn) lockOut() *tlsStack {
	for {
		t.conn.mu.Lock()
		s := t.stack
		if s == nil {
			return nil
		}
		t.conn.mu.Unlock()
		s.writing.Lock()
		if !s.left {
			return s
		}
		s.writing.Unlock()
	}
}

// lockAll acquires the locks that a change of the stack needs, except the connection's, and returns
// a function that releases them.
func (t *tlsConn) lockAll() (unlock func()) {
	t.pump.Lock()
	s := t.stack
	if s == nil {
		return t.pump.Unlock
	}
	s.writing.Lock()
	return func() {
		s.writing.Unlock()
		t.pump.Unlock()
	}
}

// state returns what the handshake has agreed upon.
func (t *tlsConn) state() tls.ConnectionState {
	t.conn.mu.Lock()
	s, agreed := t.stack, t.agreed
	t.conn.mu.Unlock()
	if s != nil {
		return s.tls.ConnectionState()
	}
	return agreed.Unpack()
}

// dropPeer forgets the peer's certificates, unless crypto/tls or a hijacker has the connection.
func (t *tlsConn) dropPeer() {
	t.conn.mu.Lock()
	defer t.conn.mu.Unlock()
	if t.stack == nil {
		t.agreed = t.agreed.WithoutPeer()
	}
}

// Read decrypts the records that have arrived, as far as b has room.
func (t *tlsConn) Read(b []byte) (n int, err error) {
	c := t.conn
	if word := c.word.Load(); word&(wOver|wEOF|wFull) != 0 {
		return 0, refusal(word)
	}
	if len(b) == 0 {
		return 0, nil // wMore stays as it is
	}
	n, err = t.read(b)
	switch {
	case n > 0:
		return n, nil // an error comes again
	case err == nil || err == tlsrecord.ErrNothing:
		return 0, sock.ErrWouldBlock
	case err == io.ErrUnexpectedEOF && c.word.Load()&wLast != 0:
		err = io.EOF // Shutdown has ended the stream inside a record
	}
	if err == io.EOF {
		c.word.Or(wEOF)
	} else {
		c.fail(err)
	}
	return 0, err
}

// read is Read without the consequences of an error.
func (t *tlsConn) read(b []byte) (n int, err error) {
	t.pump.Lock()
	if s := t.stack; s != nil {
		t.pump.Unlock()
		return s.read(b)
	}
	defer t.pump.Unlock()
	c := t.conn
	for records := 0; n < len(b) && err == nil && records < tlsRecords; records++ {
		if n > 0 && (!t.pump.HasBytes() || c.word.Load()&(wOver|wFull) != 0) {
			break
		}
		var k int
		k, err = t.pump.Read(t, b[n:], tlsBuffers, c.recvRaw)
		n += k
		failed := err != nil && err != tlsrecord.ErrNothing
		if failed {
			t.pump.Fail(err) // also if it calls itself temporary, as ETIMEDOUT does
		}
		if t.answer() != nil && !failed {
			err = net.ErrClosed // the cause was noted
		}
	}
	c.setMore(n > 0 && (err != nil && err != tlsrecord.ErrNothing || t.pump.Arrived()))
	return n, err
}

// Write encrypts and sends, or refuses all before anything is encrypted.
func (t *tlsConn) Write(b []byte) (int, error) {
	if s := t.lockOut(); s != nil {
		defer s.writing.Unlock()
		return s.write(b)
	}
	c := t.conn
	defer c.mu.Unlock()
	switch behind, err := c.admit(b); {
	case err != nil:
		return 0, err
	case behind:
		return len(b), nil
	}
	return t.encrypt(b)
}

// encrypt encrypts and sends. The lock is held.
func (t *tlsConn) encrypt(b []byte) (n int, err error) {
	buf := tlsBuffers.Get()
	defer buf.Free()
	defer t.pump.EndOut()
	for n < len(b) && err == nil {
		k := min(len(b)-n, tlsChunk)
		var out []byte
		if out, err = t.pump.Append(buf.B[:0], b[n:n+k]); err != nil {
			t.conn.failLocked(err)
		} else if err = t.send(out); err == nil {
			n += k
		}
	}
	return n, err
}

// send sends records. The lock is held.
func (t *tlsConn) send(out []byte) error {
	if len(out) == 0 {
		return nil
	}
	t.pump.Use(t)
	_, err := t.conn.writeOn(0, nil, len(out), out)
	if err != nil {
		t.pump.FailOut(err)
	}
	return err
}

// answer sends what the records that were read want to be answered with: a KeyUpdate or an alert.
// The pump's lock is held.
func (t *tlsConn) answer() error {
	if !t.pump.Owes() {
		return nil
	}
	c := t.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	defer t.pump.EndOut()
	return t.send(t.pump.Answer(nil))
}

// sendPiece sends bytes of a source.
func (t *tlsConn) sendPiece(b []byte) error {
	if s := t.lockOut(); s != nil {
		defer s.writing.Unlock()
		_, err := s.encrypt(b)
		return err
	}
	defer t.conn.mu.Unlock()
	_, err := t.encrypt(b)
	return err
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
	if s := t.lockOut(); s != nil {
		defer s.writing.Unlock()
		return s.closeNotify()
	}
	c := t.conn
	defer c.mu.Unlock()
	later, err := c.notifyLater()
	if err != nil || later {
		return err
	}
	return t.notifyNow()
}

// notify sends a close_notify after the last source.
func (t *tlsConn) notify() error {
	if s := t.lockOut(); s != nil {
		defer s.writing.Unlock()
		return s.notify()
	}
	defer t.conn.mu.Unlock()
	return t.notifyNow()
}

// notifyNow sends a close_notify. The lock is held.
func (t *tlsConn) notifyNow() error {
	defer t.pump.EndOut()
	return t.send(t.pump.CloseNotify(nil))
}

// finish sends a close_notify on a dead connection that was not ended by Close, if that is possible
// at once, and overwrites the secrets. A hijacker's calls return the cause.
func (t *tlsConn) finish(cause error) {
	t.pump.Lock()
	defer t.pump.Unlock()
	if s := t.stack; s != nil {
		s.sendCloseNotify()
		s.tls.Wipe(cmp.Or(cause, net.ErrClosed))
		return
	}
	c := t.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.word.Load()&(wReset|wOut|wShut) == 0 {
		if out := t.pump.CloseNotify(nil); len(out) > 0 {
			n, _ := c.Socket().Send(out)
			c.shared().traffic.sent(n)
		}
	}
	t.pump.Wipe(net.ErrClosed)
}

// DropCiphers implements tlsrecord.User.
func (t *tlsConn) DropCiphers() bool { return t.pump.DropCiphers(&t.conn.mu) }
