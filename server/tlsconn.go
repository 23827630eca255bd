package server

import (
	"crypto/tls"
	"io"
	"net"
	"sync"

	"github.com/socknotify/socknotify/internal/fdstate"
	"github.com/socknotify/socknotify/sock"
)

// A tlsConn is TLS between a connection and its handler. Below crypto/tls is a tlsInner, which is the same
// thing with other methods: it never waits, except in the handshake and for a hijacker.
//
// Locks are taken in this order: writing, those of crypto/tls, mu, the connection's.
type tlsConn struct {
	conn *conn
	tls  *tls.Conn
	hs   *handshake // until the handshake is over

	writing sync.Mutex // of who encrypts because somebody asked for it, and for nc
	nc      net.Conn   // of Hijack

	// What was received and crypto/tls has not asked for. It is given record by record, so that crypto/tls
	// itself has never one more in its buffer, of which nobody would know.
	feed   []byte
	buf    *tlsBuffer // that feed lies in, or nil
	head   [tlsHeader]byte
	nhead  int // how much of the head of a record was given
	left   int // how much of its body was not
	heads  int // how many records were begun since Read was called
	failed error

	mu    sync.Mutex
	out   []byte // encrypted, and to be sent
	outs  *tlsBuffer
	plain int  // how many bytes of the handler's are or will be in out
	lost  bool // something of it was not sent

	// How much of what is queued is not the handler's bytes, but records around them; under the connection's
	// lock. It is of what was encrypted before the mark and after it; what was before the mark is forgotten
	// when it was sent.
	total, mark    int64 // of all that was encrypted
	before, beyond int
}

const (
	tlsHeader = 5
	tlsBytes  = 32 << 10
	tlsChunk  = 24 << 10 // which encrypted has room in a buffer

	// tlsRecords is the number of records after which Read returns what it has, because a peer can send many that
	// yield little: up to 16 without data, such as changes of keys, before each that has a byte. Until data comes
	// crypto/tls goes on by itself, but refuses a seventeenth.
	tlsRecords = 32
)

type tlsBuffer [tlsBytes]byte

// secure puts TLS under a connection that nobody knows of yet.
func (c *conn) startTLS(config *tls.Config) {
	t := &tlsConn{conn: c}
	t.hs = &handshake{tls: t, from: c.RemoteAddr()}
	t.tls = tls.Server((*tlsInner)(t), config)
	c.ensureExtra().transport = t
	c.wrapped = true
	c.word.Or(wHandshake)
}

// Read decrypts as much as has come, or b has room for.
func (t *tlsConn) Read(b []byte) (n int, err error) {
	c := t.conn
	if word := c.word.Load(); word&(wOver|wEOF|wFull) != 0 {
		return 0, refusal(word)
	}
	if len(b) == 0 {
		return 0, nil // what there is to read stays to be told of
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
		err = net.ErrClosed // what it was for will be told
	}
	switch {
	case err == errAgain:
		err = nil
	case err == io.ErrUnexpectedEOF && c.server().isClosing():
		err = io.EOF // Shutdown has cut a record
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

// more says whether there is something to be read that no notification will tell of.
func (t *tlsConn) setMore(is bool) {
	w := &t.conn.word
	switch {
	case is:
		w.Or(wMore)
	case w.Load()&wMore != 0:
		w.And(^uint32(wMore))
	}
}

// receive is for the system's bytes.
func (t *tlsConn) receive(b []byte) (int, error) {
	if t.nc != nil {
		return t.nc.Read(b)
	}
	c := t.conn
	word := c.word.Load()
	if word&wOver != 0 {
		return 0, net.ErrClosed
	}
	if word&(wPaused|wLast) == 0 && c.socket().FD().Drained(fdstate.Recv) {
		return 0, errAgain
	}
	n, err := c.socket().Recv(b) // which may be closed under a handshake
	if err == sock.ErrWouldBlock {
		if err = errAgain; word&wLast != 0 {
			err = io.EOF
		}
	}
	return n, err
}

// give gives crypto/tls what has come of one record.
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

// cut is how much of what comes next is still of the present record.
func (t *tlsConn) recordPart(b []byte) (n int) {
	if t.left == 0 {
		n = copy(t.head[t.nhead:], b)
		if t.nhead += n; t.nhead < tlsHeader {
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
