package server

import (
	"crypto/tls"
	"io"
	"net"
	"sync"

	"github.com/socknotify/socknotify/internal/fdstate"
	"github.com/socknotify/socknotify/sock"
)

// A tlsConn is the TLS transport of a connection. It calls crypto/tls, which reads and writes through a tlsInner: the same
// struct with the methods of a net.Conn. That never waits, except in the handshake and for a hijacker.
//
// Locks are acquired in this order: writing, those of crypto/tls, mu, the connection's.
type tlsConn struct {
	conn *conn
	tls  *tls.Conn
	hs   *handshake // until the handshake is over

	writing sync.Mutex // held by Write and by all that ends the stream, and for changes of nc
	nc      net.Conn   // returned by Hijack, or nil

	// The bytes that were received and that crypto/tls has not read. It reads record by record, so it never has a whole
	// record in its own buffer, which the server would not know of.
	feed   []byte
	buf    *tlsBuffer // that feed is in, or nil
	head   [tlsHeader]byte
	nhead  uint8  // bytes of head that crypto/tls has read
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

	// tlsRecords is the number of records after which Read returns, because a peer can send many records with few
	// bytes: up to 16 without data, such as key updates, before each with one byte. crypto/tls itself reads on until
	// there is data, and refuses a seventeenth record without.
	tlsRecords = 32
)

type tlsBuffer [tlsBytes]byte

// startTLS puts TLS on a new connection.
func (c *conn) startTLS(config *tls.Config) {
	t := &tlsConn{conn: c}
	t.hs = &handshake{tls: t, from: c.RemoteAddr()}
	t.tls = tls.Server((*tlsInner)(t), config)
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
	case err == io.ErrUnexpectedEOF && c.server().isClosing():
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
func (c *conn) recvRaw(b []byte) (int, error) {
	word := c.word.Load()
	if word&wOver != 0 {
		return 0, net.ErrClosed
	}
	if word&(wPaused|wLast) == 0 && fdstate.Of(c.socket().SyscallConn()).Drained(fdstate.Recv) {
		return 0, errAgain
	}
	if word&wRated != 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		if b = b[:c.allowIn(len(b))]; len(b) == 0 {
			return 0, errAgain
		}
	}
	n, err := c.socket().Recv(b) // not held.Recv: the connection may end during a handshake
	c.server().traffic.received(n)
	if word&wRated != 0 {
		c.tookIn(n)
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
	s := t.conn.server()
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

// recordPart returns how many of the next bytes belong to the current record, and advances by as many.
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
