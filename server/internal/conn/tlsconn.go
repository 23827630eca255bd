package conn

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/fdstate"
	"github.com/socknotify/socknotify/internal/tlsrecord"
	"github.com/socknotify/socknotify/sock"
)

// A tlsConn is the TLS transport of a connection. crypto/tls makes the handshake, and then
// internal/tlsrecord takes the connection over if it can. Both read and write through a tlsInner:
// the same struct with the methods of a net.Conn. That never waits, except in the handshake and for
// a hijacker.
//
// Locks are acquired in this order: writing, those of tls, mu, the connection's.
type tlsConn struct {
	conn *Conn
	tls  *tlsrecord.Conn
	hs   *handshake // until the handshake is over

	writing sync.Mutex // held by Write and by all that ends the stream, and for changes of nc
	nc      net.Conn   // returned by Hijack, or nil

	// The bytes that were received and that tls has not read. It is given record by record, so it
	// never has a whole record in its own buffer, which the server would not know of.
	feed   []byte
	buf    *tlsBuffer // that feed is in, or nil
	head   [tlsHeader]byte
	nhead  uint8  // bytes of head that tls has read
	heads  uint16 // records begun since Read was called
	left   int    // bytes of the record's body that it has not read
	failed error

	mu   sync.Mutex
	out  []byte // encrypted, and to be sent
	outs *tlsBuffer
	lost bool // sending a part of out has failed
}

const (
	tlsHeader = 5
	tlsBytes  = 32 << 10
	tlsChunk  = 24 << 10 // plaintext that fits into a buffer when encrypted

	// tlsRecords is the number of records after which Read returns, because a peer can send many
	// records with few bytes: up to 16 without data, such as key updates, before each with one
	// byte. crypto/tls itself reads on until there is data, and refuses a seventeenth record
	// without.
	tlsRecords = 32
)

type tlsBuffer [tlsBytes]byte

func (c *Conn) TLS() *tls.ConnectionState {
	t := c.tls()
	if t == nil {
		return nil
	}
	state := t.tls.ConnectionState()
	return &state
}

// tls returns the connection's transport if that is TLS, or nil.
func (c *Conn) tls() *tlsConn {
	if !c.wrapped {
		return nil
	}
	t, _ := c.extra.transport.(*tlsConn)
	return t
}

// startTLS puts TLS on a new connection.
func (c *Conn) startTLS(config *tls.Config) {
	t := &tlsConn{conn: c}
	t.hs = &handshake{tls: t, from: c.RemoteAddr()}
	t.tls = tlsrecord.Server((*tlsInner)(t), config, &c.shared().tlsOptions)
	c.ensureExtra().transport = t
	c.wrapped = true
	c.word.Or(wHandshake)
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
	err = t.failed
	for t.heads = 0; n < len(b) && err == nil && t.heads < tlsRecords; {
		var k int
		k, err = t.tls.Read(b[n:])
		n += k
		if len(t.feed) == 0 || c.word.Load()&(wOver|wFull) != 0 {
			break
		}
	}
	if t.push() != nil {
		err = net.ErrClosed // push has noted the cause
	}
	switch {
	case err == errAgain:
		err = nil
	case err == io.ErrUnexpectedEOF && c.word.Load()&wLast != 0:
		err = io.EOF // Shutdown has ended the stream inside a record
	}
	if n > 0 {
		t.failed = err
		t.setMore(err != nil || n == len(b) || len(t.feed) > 0)
		return n, nil
	}
	t.setMore(false)
	switch err {
	case nil:
		return 0, sock.ErrWouldBlock
	case io.EOF:
		c.word.Or(wEOF)
	default:
		c.fail(err)
	}
	return 0, err
}

// setMore notes whether there are bytes to read that no notification will report.
func (t *tlsConn) setMore(is bool) {
	w := &t.conn.word
	switch {
	case is:
		w.Or(wMore)
	case w.Load()&wMore != 0:
		w.And(^uint32(wMore))
	}
}

// receive receives encrypted bytes.
func (t *tlsConn) receive(b []byte) (int, error) {
	if t.nc != nil {
		return t.nc.Read(b)
	}
	return t.conn.recvRaw(b)
}

// recvRaw receives for a transport or a header. It returns errAgain instead of sock.ErrWouldBlock.
func (c *Conn) recvRaw(b []byte) (int, error) {
	word := c.word.Load()
	if word&wOver != 0 {
		return 0, net.ErrClosed
	}
	if word&(wPaused|wLast) == 0 && fdstate.Of(c.Socket().SyscallConn()).Drained(fdstate.Recv) {
		return 0, errAgain
	}
	if c.rated {
		c.mu.Lock()
		defer c.mu.Unlock()
		if b = b[:c.allow(&c.extra.rates.in, len(b))]; len(b) == 0 {
			return 0, errAgain
		}
	}
	n, err := c.Socket().Recv(b) // not held.Recv: the connection may end during a handshake
	c.shared().traffic.received(n)
	if c.rated {
		c.extra.rates.in.took(n)
	}
	if err == sock.ErrWouldBlock {
		if err = errAgain; word&wLast != 0 {
			err = io.EOF
		}
	}
	return n, err
}

// readRecord copies received bytes of the current record to p.
func (t *tlsConn) readRecord(p []byte) (int, error) {
	s := t.conn.shared()
	if len(t.feed) == 0 {
		buf := s.tlsBuffers.Get().(*tlsBuffer)
		n, err := t.receive(buf[:])
		if n == 0 {
			s.tlsBuffers.Put(buf)
			return 0, err
		}
		t.buf, t.feed = buf, buf[:n]
	}
	n := copy(p, t.feed[:t.recordPart(t.feed[:min(len(p), len(t.feed))])])
	if t.feed = t.feed[n:]; len(t.feed) == 0 {
		if t.buf != nil {
			s.tlsBuffers.Put(t.buf)
		}
		t.buf, t.feed = nil, nil
	}
	return n, nil
}

// recordPart returns how many of the next bytes belong to the current record, and advances by as
// many.
func (t *tlsConn) recordPart(b []byte) (n int) {
	if t.left == 0 {
		n = copy(t.head[t.nhead:], b)
		if t.nhead += uint8(n); t.nhead < tlsHeader {
			return n
		}
		t.nhead, t.left = 0, recordLength(t.head[:])
		t.heads++
	}
	k := min(t.left, len(b)-n)
	t.left -= k
	return n + k
}

func recordLength(head []byte) int { return int(head[3])<<8 | int(head[4]) }

// A tlsInner is the net.Conn below tls.
type tlsInner tlsConn

// errAgain is returned to tls when nothing has arrived. Because it is temporary, tls can go on after
// it, and keeps what it has of a record or of a handshake message.
var errAgain error = againError{}

type againError struct{}

func (againError) Error() string   { return "server: nothing has arrived" }
func (againError) Timeout() bool   { return true }
func (againError) Temporary() bool { return true }

func (i *tlsInner) Read(p []byte) (int, error) {
	t := (*tlsConn)(i)
	for {
		n, err := t.readRecord(p)
		if err != errAgain || t.hs == nil {
			return n, err
		}
		if err := t.waitForPeer(); err != nil {
			return 0, err
		}
	}
}

// Write appends to out, which is sent by push when tls has returned.
func (i *tlsInner) Write(p []byte) (int, error) {
	t := (*tlsConn)(i)
	if t.nc != nil {
		return t.nc.Write(p)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.out == nil {
		t.outs = t.conn.shared().tlsBuffers.Get().(*tlsBuffer)
		t.out = t.outs[:0]
	}
	t.out = append(t.out, p...)
	return len(p), nil
}

// Close is called when a hijacker closes the connection, after tls has sent its close_notify. During a handshake crypto/tls calls it after an error, which the caller of the
// handshake handles.
func (i *tlsInner) Close() error {
	if i.hs != nil {
		return nil
	}
	return i.conn.Close()
}

func (i *tlsInner) LocalAddr() net.Addr  { return i.conn.LocalAddr() }
func (i *tlsInner) RemoteAddr() net.Addr { return i.conn.RemoteAddr() }

func (i *tlsInner) SetDeadline(t time.Time) error     { return i.set(t, net.Conn.SetDeadline) }
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

// Write encrypts and sends, or refuses all before anything is encrypted, because tls keeps every
// error of a write.
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

// push sends the encrypted bytes in out. A reader calls it for answers to the peer, possibly while
// another goroutine is in Write; then push may send a part of what Write encrypts.
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
		t.conn.shared().tlsBuffers.Put(t.outs)
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

// sendCloseNotify sends a close_notify on a dead connection that was not ended by Close, if that is
// possible at once.
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
		n, _ := c.Socket().Send(t.out)
		c.shared().traffic.sent(n)
	}
	t.sent()
}
