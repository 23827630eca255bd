package conn

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
	"github.com/socknotify/socknotify/sock"
)

// A tlsConn is the TLS of a connection. A tlsStack makes the handshake, and then the connection is
// taken over from it, if that is possible: its records are opened from the buffer that they were
// received in, and made where they are sent from. While it is idle, nothing is kept but this, and
// the keys and the state that it points to; its size counts.
//
// Locks are acquired in this order: reading, the connection's, which is held for the sending side.
type tlsConn struct {
	link
	conn  *Conn
	stack *tlsStack // until the take-over, and from Hijack on; changed with both locks held

	reading sync.Mutex
	in      *tlsBuffer // nil while nothing has been received and not read
	used    atomic.Uint32
	records tlsrecord.Records
	state   tlsrecord.State
}

const (
	tlsHeader = 5
	tlsBytes  = 32<<10 - 6*8 // so that a tlsBuffer has 32 KiB
	tlsChunk  = 24 << 10     // plaintext that fits into a buffer when encrypted

	// tlsRecords is the number of records after which Read returns, because a peer can send many
	// records with few bytes: up to 16 without data, such as key updates, before each with one
	// byte. crypto/tls itself reads on until there is data, and refuses a seventeenth record
	// without.
	tlsRecords = 32
)

// A tlsBuffer has what was received or what is to be sent.
type tlsBuffer struct {
	b    [tlsBytes]byte
	wire []byte // received, and not opened
	data []byte // opened, and not read
}

// tls returns the TLS of the connection, or nil.
func (c *Conn) tls() *tlsConn { return c.link.tls }

// startTLS puts TLS on a new connection.
func (c *Conn) startTLS(config *tls.Config) {
	s := &tlsStack{conn: c}
	s.hs = &handshake{tls: s, from: c.RemoteAddr()}
	s.tls = tlsrecord.Server((*tlsInner)(s), config, &c.shared().tlsOptions)
	t := &tlsConn{conn: c, stack: s}
	t.link = link{c.link.listener, t}
	c.link = &t.link
	c.ensureExtra()
	c.wrapped = true
	c.word.Or(wHandshake)
}

// takeOver ends the stack after the handshake, unless crypto/tls keeps the connection.
func (t *tlsConn) takeOver() {
	s, c := t.stack, t.conn
	records, state, ok := s.tls.Detach()
	more := len(s.feed) > 0
	if ok {
		t.reading.Lock()
		c.mu.Lock()
		t.records, t.state, t.stack = records, state, nil
		if more {
			t.in = c.shared().tlsBuffers.Get().(*tlsBuffer)
			t.in.wire = bytes.Clone(s.feed)
			more = t.pending()
		}
		c.dropExtra()
		c.mu.Unlock()
		t.reading.Unlock()
		s.dropFeed()
	}
	c.setMore(more)
}

// makeStack gives a connection that is being hijacked a stack, where it has none. The locks are
// held.
func (t *tlsConn) makeStack() {
	if t.stack != nil {
		return
	}
	s := &tlsStack{conn: t.conn}
	var data []byte
	if in := t.in; in != nil {
		s.feed, data = bytes.Clone(in.wire), in.data
	}
	s.tls = tlsrecord.Attach((*tlsInner)(s), t.records, t.state, data)
	t.stack, t.records, t.state = s, tlsrecord.Records{}, tlsrecord.State{}
	t.dropInput()
}

// hijack returns the connection for a hijacker.
func (t *tlsConn) hijack(h *hijacked) net.Conn {
	t.makeStack()
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

// lock locks the connection and returns nil. If there is a stack, it returns that without locking.
func (t *tlsConn) lock() *tlsStack {
	t.conn.mu.Lock()
	s := t.stack
	if s != nil {
		t.conn.mu.Unlock()
	}
	return s
}

// lockAll acquires the locks that a change of the stack needs, except the connection's, and returns
// a function that releases them.
func (t *tlsConn) lockAll() (unlock func()) {
	t.reading.Lock()
	s := t.stack
	if s == nil {
		return t.reading.Unlock
	}
	t.reading.Unlock() // whose holder may wait for that of the stack
	s.writing.Lock()
	return s.writing.Unlock
}

func (c *Conn) TLS() *tls.ConnectionState {
	t := c.tls()
	if t == nil {
		return nil
	}
	if s := t.lock(); s != nil {
		state := s.tls.ConnectionState()
		return &state
	}
	defer c.mu.Unlock()
	state := t.state.Unpack()
	return &state
}

// Read decrypts the records that have arrived, as far as b has room.
func (t *tlsConn) Read(b []byte) (n int, err error) {
	t.reading.Lock()
	if s := t.stack; s != nil {
		t.reading.Unlock()
		return s.Read(b)
	}
	defer t.reading.Unlock()
	c := t.conn
	if word := c.word.Load(); word&(wOver|wEOF|wFull) != 0 {
		return 0, refusal(word)
	}
	if len(b) == 0 {
		return 0, nil // wMore stays as it is
	}
	n, err = t.read(b)
	if t.used.Load() == 0 {
		t.records.Drop()
	}
	c.setMore(n > 0 && (err != nil || t.pending()))
	if in := t.in; in != nil && len(in.wire) == 0 && len(in.data) == 0 {
		t.dropInput()
	}
	switch {
	case n > 0:
		return n, nil // an error comes again
	case err == nil:
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

// read is Read without what follows a record. reading is held.
func (t *tlsConn) read(b []byte) (n int, err error) {
	for records := 0; n < len(b) && records < tlsRecords; records++ {
		if in := t.in; in != nil && len(in.data) > 0 {
			k := copy(b[n:], in.data)
			in.data = in.data[k:]
			n += k
			continue
		}
		if n > 0 && (t.in == nil || len(t.in.wire) == 0 || t.conn.word.Load()&(wOver|wFull) != 0) {
			break
		}
		record, err := t.nextRecord()
		if record == nil {
			t.answer()
			return n, err
		}
		tlsrecord.UseCipher(t, &t.used)
		k := 0
		k, t.in.data, err = t.records.Read(b[n:], record)
		n += k
		if t.answer() != nil {
			err = net.ErrClosed // the cause was noted
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// nextRecord returns the next record, and receives it where needed. It returns nil, without an
// error, if it has not arrived.
func (t *tlsConn) nextRecord() ([]byte, error) {
	for {
		need := tlsHeader
		if in := t.in; in != nil && len(in.wire) >= tlsHeader {
			n, err := t.records.Length(in.wire)
			if err != nil {
				return nil, err
			}
			if need = n; len(in.wire) >= n {
				record := in.wire[:n]
				in.wire = in.wire[n:]
				return record, nil
			}
		} else if err := t.records.Err(); err != nil {
			return nil, err
		}
		if err := t.fill(need); err == errAgain {
			return nil, nil
		} else if err != nil {
			t.records.Fail(err)
			return nil, err
		}
	}
}

// fill receives once, for a record of which need bytes are wanted.
func (t *tlsConn) fill(need int) error {
	in := t.in
	if in == nil {
		in = t.conn.shared().tlsBuffers.Get().(*tlsBuffer)
		in.wire = in.b[:0]
		t.in = in
	}
	if len(in.wire) == 0 || cap(in.wire) < need {
		in.wire = in.b[:copy(in.b[:], in.wire)]
	}
	have := len(in.wire)
	n, err := t.conn.recvRaw(in.wire[have:cap(in.wire)])
	in.wire = in.wire[:have+n]
	switch {
	case n > 0:
		return nil // an error comes again
	case err == io.EOF && have > 0:
		return io.ErrUnexpectedEOF
	}
	return err
}

// pending reports whether Read would return something that no notification will report.
func (t *tlsConn) pending() bool {
	in := t.in
	switch {
	case in == nil:
		return false
	case len(in.data) > 0:
		return true
	case len(in.wire) < tlsHeader:
		return false
	}
	n, err := t.records.Length(in.wire)
	return err != nil || n <= len(in.wire)
}

// dropInput gives the buffer back. reading is held.
func (t *tlsConn) dropInput() {
	if t.in != nil {
		t.conn.shared().putTLSBuffer(t.in)
		t.in = nil
	}
}

// setMore notes whether there are bytes to read that no notification will report.
func (c *Conn) setMore(is bool) {
	switch w := &c.word; {
	case is:
		w.Or(wMore)
	case w.Load()&wMore != 0:
		w.And(^uint32(wMore))
	}
}

// Write encrypts and sends, or refuses all before anything is encrypted: a record that is not sent
// would be missing at the peer.
func (t *tlsConn) Write(b []byte) (int, error) {
	if s := t.lock(); s != nil {
		return s.Write(b)
	}
	c := t.conn
	defer c.mu.Unlock()
	err := c.mayWrite()
	if err == nil {
		err = c.accept(len(b), nil)
	}
	switch {
	case err != nil:
		return 0, err
	case c.writeBehind(b):
		return len(b), nil
	}
	return t.encrypt(b)
}

// encrypt encrypts and sends. The lock is held.
func (t *tlsConn) encrypt(b []byte) (n int, err error) {
	s := t.conn.shared()
	buf := s.tlsBuffers.Get().(*tlsBuffer)
	defer s.putTLSBuffer(buf)
	defer t.endOut()
	for n < len(b) && err == nil {
		k := min(len(b)-n, tlsChunk)
		var out []byte
		if out, err = t.records.Append(buf.b[:0], b[n:n+k]); err != nil {
			t.conn.failLocked(err)
		} else if err = t.send(out); err == nil {
			n += k
		}
	}
	return n, err
}

// send sends records. The lock is held.
func (t *tlsConn) send(out []byte) error {
	tlsrecord.UseCipher(t, &t.used)
	_, err := t.conn.writeOn(0, nil, len(out), out)
	if err != nil {
		t.records.FailOut(err)
	}
	return err
}

// endOut ends a use of the sending side's cipher. The lock is held.
func (t *tlsConn) endOut() {
	if t.used.Load() == 0 {
		t.records.DropOut()
	}
}

// answer sends what the records that were read want to be answered with. reading is held.
func (t *tlsConn) answer() error {
	if !t.records.Owes() {
		return nil
	}
	c := t.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	defer t.endOut()
	out := t.records.Answer(nil)
	if len(out) == 0 {
		return nil
	}
	return t.send(out)
}

// sendPiece sends bytes of a source.
func (t *tlsConn) sendPiece(b []byte) error {
	if s := t.lock(); s != nil {
		return s.sendPiece(b)
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
	if s := t.lock(); s != nil {
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

// notifyLater has the close_notify sent after the last source, if there are any, and reports
// whether it has. The lock is held.
func (c *Conn) notifyLater() (bool, error) {
	err := c.sendable()
	later := err == nil && c.feeds()
	if later {
		c.extra.notify = true
	}
	return later, err
}

// notify sends a close_notify after the last source.
func (t *tlsConn) notify() error {
	if s := t.lock(); s != nil {
		return s.notify()
	}
	defer t.conn.mu.Unlock()
	return t.notifyNow()
}

// notifyNow sends a close_notify. The lock is held.
func (t *tlsConn) notifyNow() error {
	defer t.endOut()
	if out := t.records.CloseNotify(nil); len(out) > 0 {
		return t.send(out)
	}
	return nil
}

// finish sends a close_notify on a dead connection that was not ended by Close, if that is possible
// at once, and overwrites the secrets. A hijacker's calls return the cause.
func (t *tlsConn) finish(cause error) {
	t.reading.Lock()
	defer t.reading.Unlock()
	if s := t.stack; s != nil {
		s.sendCloseNotify()
		s.tls.Wipe(cmp.Or(cause, net.ErrClosed))
		return
	}
	c := t.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.word.Load()&(wReset|wOut|wShut) == 0 {
		if out := t.records.CloseNotify(nil); len(out) > 0 {
			n, _ := c.Socket().Send(out)
			c.shared().traffic.sent(n)
		}
	}
	t.records.Wipe(net.ErrClosed)
	t.records.WipeOut(net.ErrClosed)
	t.dropInput()
}

// DropCiphers implements tlsrecord.User.
func (t *tlsConn) DropCiphers() bool {
	if !t.reading.TryLock() {
		return false
	}
	defer t.reading.Unlock()
	if !t.conn.mu.TryLock() {
		return false
	}
	defer t.conn.mu.Unlock()
	t.records.Drop()
	t.records.DropOut()
	t.used.Store(0)
	return true
}
