package conn

import (
	"net"
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
)

// A tlsStack is TLS that does its own input and output: crypto/tls during the handshake and where
// it keeps the connection, and that of a hijacker. crypto/tls reads and writes through a tlsInner:
// the same struct with the methods of a net.Conn. That never waits, except in the handshake and for
// a hijacker.
//
// Locks are acquired in this order: writing, those of tls, mu, the connection's.
type tlsStack struct {
	conn *Conn
	tls  *tlsrecord.Conn
	hs   *handshake // until the handshake is over

	writing sync.Mutex // held by writes and by all that ends the stream, and for changes of nc
	nc      net.Conn   // returned by Hijack, or nil
	left    bool       // the connection was taken over from the stack

	first  []byte // received before the handshake, and not read by tls
	failed error  // for the next read

	mu   sync.Mutex
	out  []byte            // encrypted, and to be sent
	outs *tlsrecord.Buffer // that out is in, or nil
	lost bool              // sending a part of out has failed
}

// read decrypts the records that have arrived, as far as b has room.
func (t *tlsStack) read(b []byte) (n int, err error) {
	c := t.conn
	err = t.failed
	ahead, before := t.ahead()
	for records := before; n < len(b) && err == nil && records-before < tlsRecords; {
		var k int
		k, err = t.tls.Read(b[n:])
		n += k
		if ahead, records = t.ahead(); !ahead || c.word.Load()&(wOver|wFull) != 0 {
			break
		}
	}
	if t.push() != nil {
		err = net.ErrClosed // push has noted the cause
	}
	if err == tlsrecord.ErrNothing {
		err = nil
	}
	if n > 0 {
		t.failed = err
	}
	c.setMore(n > 0 && (err != nil || n == len(b) || ahead))
	return n, err
}

// ahead reports whether bytes were received that crypto/tls has not read, and how many records it
// has begun to read.
func (t *tlsStack) ahead() (is bool, records int) {
	n, records := t.tls.Ahead()
	return n > 0 || len(t.first) > 0, records
}

// receive receives encrypted bytes.
func (t *tlsStack) receive(b []byte) (int, error) {
	if n := copy(b, t.first); n > 0 {
		if t.first = t.first[n:]; len(t.first) == 0 {
			t.first = nil
		}
		return n, nil
	}
	if t.nc != nil {
		return t.nc.Read(b)
	}
	return t.conn.recvRaw(b)
}

// A tlsInner is the net.Conn below tls.
type tlsInner tlsStack

func (i *tlsInner) Read(p []byte) (int, error) {
	t := (*tlsStack)(i)
	for {
		n, err := t.receive(p)
		if err != tlsrecord.ErrNothing || t.hs == nil {
			return n, err
		}
		if err := t.waitForPeer(); err != nil {
			return 0, err
		}
	}
}

// Write appends to out, which is sent by push when tls has returned.
func (i *tlsInner) Write(p []byte) (int, error) {
	t := (*tlsStack)(i)
	if t.nc != nil {
		return t.nc.Write(p)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.out == nil {
		t.outs = tlsBuffers.Get()
		t.out = t.outs.B[:0]
	}
	t.out = append(t.out, p...)
	return len(p), nil
}

// Close is called when a hijacker closes the connection, after tls has sent its close_notify.
// During a handshake crypto/tls calls it after an error, which the caller of the handshake
// handles.
func (i *tlsInner) Close() error {
	if i.hs != nil {
		return nil
	}
	return i.conn.Close()
}

func (i *tlsInner) LocalAddr() net.Addr { return i.conn.LocalAddr() }

func (i *tlsInner) RemoteAddr() net.Addr { return i.conn.RemoteAddr() }

func (i *tlsInner) SetDeadline(t time.Time) error { return i.set(t, net.Conn.SetDeadline) }

func (i *tlsInner) SetReadDeadline(t time.Time) error { return i.set(t, net.Conn.SetReadDeadline) }

func (i *tlsInner) SetWriteDeadline(t time.Time) error {
	return i.set(t, net.Conn.SetWriteDeadline)
}

// set sets a deadline, if there is a hijacker. Others set none.
func (i *tlsInner) set(t time.Time, deadline func(net.Conn, time.Time) error) error {
	if i.nc == nil {
		return nil
	}
	return deadline(i.nc, t)
}

// write encrypts and sends, or refuses all before anything is encrypted, because tls keeps every
// error of a write. writing is held.
func (t *tlsStack) write(b []byte) (int, error) {
	c := t.conn
	c.mu.Lock()
	behind, err := c.admit(b)
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
func (t *tlsStack) encrypt(b []byte) (n int, err error) {
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

// push sends the encrypted bytes in out. A reader calls it for answers to the peer, possibly while
// another goroutine is in Write; then push may send a part of what Write encrypts.
func (t *tlsStack) push() error {
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
func (t *tlsStack) sent() {
	if t.outs != nil {
		t.outs.Free()
	}
	t.out, t.outs = nil, nil
}

// closeNotify sends a close_notify before the stream ends. writing is held.
func (t *tlsStack) closeNotify() error {
	c := t.conn
	c.mu.Lock()
	later, err := c.notifyLater()
	c.mu.Unlock()
	if err != nil || later {
		return err
	}
	return t.notify()
}

// notify sends a close_notify. writing is held.
func (t *tlsStack) notify() error {
	t.tls.CloseWrite() // it fails if the connection has failed before, or the handshake is not done
	return t.push()
}

// sendCloseNotify sends a close_notify on a dead connection that was not ended by Close, if that is
// possible at once.
func (t *tlsStack) sendCloseNotify() {
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
		n, _ := c.Socket().Send(t.out)
		c.shared().traffic.sent(n)
	}
	t.sent()
}

const (
	tlsChunk = 24 << 10 // plaintext that fits into a buffer when encrypted

	// tlsRecords is the number of records after which Read returns, because a peer can send many
	// records with few bytes: up to 16 without data, such as key updates, before each with one
	// byte. crypto/tls itself reads on until there is data, and refuses a seventeenth record
	// without.
	tlsRecords = 32
)
