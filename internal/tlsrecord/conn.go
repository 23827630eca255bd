package tlsrecord

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A Conn is a server's TLS connection, as a net.Conn. It has the methods of a *tls.Conn that a
// server uses. crypto/tls makes the handshake, and keeps the connection if Take fails.
type Conn struct {
	net.Conn // below; its deadlines and addresses are the connection's

	shaking sync.Mutex
	pending *pending    // until the handshake is over
	over    atomic.Bool // the handshake is, and the next three fields do not change any more
	state   tls.ConnectionState
	stock   *tls.Conn // the connection, if crypto/tls keeps it; otherwise nil
	records Records

	reading sync.Mutex
	buf     *buffer
	wire    []byte // in buf: received, and not opened
	data    []byte // in buf: opened, and not read

	writing sync.Mutex
	ended   atomic.Pointer[error] // why the connection is closed; nil if it is open
	live    atomic.Bool           // ciphers knows the connection
	round   atomic.Uint32         // of ciphers, when a cipher was last used
}

// pending is what a connection needs before its handshake.
type pending struct {
	config  *tls.Config
	options *Options
	err     error // of the handshake
}

// Options are what the connections of a server have in common.
type Options struct {
	// Keep, which may be nil, is called after a handshake, and returns true for a connection that
	// must stay with crypto/tls.
	Keep func(tls.ConnectionState) bool
	// Kept, which may be nil, is called for each connection that stays with crypto/tls although Keep
	// is nil or has returned false, with the reason.
	Kept func(why error)
}

// A buffer has room for a record and what arrives behind it, or for what is sent with one call.
type buffer [2 * MaxRecord]byte

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// Server returns a server's side of a TLS connection. The handshake is made when it is first used.
func Server(conn net.Conn, config *tls.Config, options *Options) *Conn {
	return &Conn{Conn: conn, pending: &pending{config: config, options: options}}
}

// Handshake makes the handshake unless it has been made.
func (c *Conn) Handshake() error { return c.HandshakeContext(context.Background()) }

// HandshakeContext is Handshake, and closes the connection below when ctx is done.
func (c *Conn) HandshakeContext(ctx context.Context) error {
	if c.over.Load() {
		return nil
	}
	c.shaking.Lock()
	defer c.shaking.Unlock()
	switch {
	case c.over.Load():
		return nil
	case c.pending.err != nil:
		return c.pending.err
	}
	w := &wire{Conn: c.Conn}
	config := w.Config(c.pending.config)
	ofProgram(config, c.Conn)
	t := tls.Server(w, config)
	if err := t.HandshakeContext(ctx); err != nil {
		c.pending.err = err
		return err
	}
	c.take(t, w)
	w.over = true
	c.pending = nil
	c.over.Store(true)
	return nil
}

// take takes the connection over from crypto/tls, if that is possible.
func (c *Conn) take(t *tls.Conn, w *wire) {
	o := c.pending.options
	c.state = t.ConnectionState()
	if o != nil && o.Keep != nil && o.Keep(c.state) {
		c.stock = t
		w.wipe()
		return
	}
	records, err := w.Take(t)
	if err != nil {
		c.stock = t
		if o != nil && o.Kept != nil {
			o.Kept(err)
		}
		return
	}
	w.cut.Store(true)
	c.state.TLSUnique = append([]byte(nil), c.state.TLSUnique...) // it points into t
	c.records = *records
}

// Stock returns the connection of crypto/tls if that keeps it. Otherwise, and before the handshake,
// it returns nil.
func (c *Conn) Stock() *tls.Conn {
	if !c.over.Load() {
		return nil
	}
	return c.stock
}

// ofProgram lets the program's callbacks see its own connection.
func ofProgram(config *tls.Config, conn net.Conn) {
	if get := config.GetConfigForClient; get != nil {
		config.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			h.Conn = conn
			own, err := get(h)
			if own != nil {
				ofProgram(own, conn)
			}
			return own, err
		}
	}
	if get := config.GetCertificate; get != nil {
		config.GetCertificate = func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			h.Conn = conn
			return get(h)
		}
	}
}

// A wire is the connection below crypto/tls.
type wire struct {
	net.Conn
	Handshake
	over bool        // the handshake is; changed before the program has the connection
	cut  atomic.Bool // crypto/tls may not use the connection any more
}

func (w *wire) Write(b []byte) (int, error) {
	if w.cut.Load() {
		return 0, net.ErrClosed
	}
	n, err := w.Conn.Write(b)
	if !w.over {
		w.Sent(b[:n])
	}
	return n, err
}

// Read receives no more than the record has, so that nothing is left when the handshake is over.
func (w *wire) Read(b []byte) (int, error) {
	switch {
	case w.cut.Load():
		return 0, net.ErrClosed
	case w.over:
		return w.Conn.Read(b)
	case w.left == 0:
		b = b[:min(len(b), headerSize-w.nhead)]
	default:
		b = b[:min(len(b), w.left)]
	}
	n, err := w.Conn.Read(b)
	w.Part(b[:n])
	return n, err
}

// ConnectionState returns what the handshake has agreed upon. Before that it is zero.
func (c *Conn) ConnectionState() tls.ConnectionState {
	switch {
	case !c.over.Load():
		return tls.ConnectionState{}
	case c.stock != nil:
		return c.stock.ConnectionState()
	}
	return c.state
}

// NetConn returns the connection below. Bytes that are read from it or written to it are missing
// here.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Read reads data, of at most one record. The errors are those of a *tls.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	if err := c.Handshake(); err != nil {
		return 0, err
	}
	switch {
	case c.stock != nil:
		return c.stock.Read(b)
	case len(b) == 0:
		return 0, nil
	}
	c.reading.Lock()
	defer c.endReading()
	for len(c.data) == 0 {
		if err := c.open(); err != nil {
			c.release()
			return 0, err
		}
	}
	n := copy(b, c.data)
	c.data = c.data[n:]
	// A close_notify behind the data is returned with it, so that a program that reuses connections
	// does not take this one for open. crypto/tls does so too.
	if len(c.data) == 0 && len(c.wire) > 0 && c.wire[0] == typeAlert {
		if record := c.record(); record != nil {
			ciphers.use(c)
			c.records.Open(record)
		}
		c.answer()
	}
	var err error
	if len(c.data) == 0 {
		err = c.records.Err()
	}
	c.release()
	return n, err
}

// open opens the next record.
func (c *Conn) open() error {
	record, err := c.nextRecord()
	if err != nil {
		c.answer()
		return err
	}
	ciphers.use(c)
	c.data, err = c.records.Open(record)
	c.answer()
	return err
}

// nextRecord returns the next record, and receives it where needed.
func (c *Conn) nextRecord() ([]byte, error) {
	for {
		need := headerSize
		if len(c.wire) >= headerSize {
			n, err := c.records.Length(c.wire)
			if err != nil {
				return nil, err
			}
			if need = n; len(c.wire) >= n {
				return c.record(), nil
			}
		} else if err := c.records.Err(); err != nil {
			return nil, err
		}
		if err := c.fill(need); err != nil {
			return nil, err
		}
	}
}

// record takes a whole record that has arrived, or returns nil.
func (c *Conn) record() []byte {
	if len(c.wire) < headerSize {
		return nil
	}
	n, err := c.records.Length(c.wire)
	if err != nil || len(c.wire) < n {
		return nil
	}
	record := c.wire[:n]
	c.wire = c.wire[n:]
	return record
}

// fill receives once, for a record of which need bytes are wanted.
func (c *Conn) fill(need int) error {
	if c.buf == nil {
		c.buf = buffers.Get().(*buffer)
		c.wire = c.buf[:0]
	}
	if cap(c.wire) < need {
		c.wire = c.buf[:copy(c.buf[:], c.wire)]
	}
	have := len(c.wire)
	n, err := c.Conn.Read(c.wire[have:cap(c.wire)])
	c.wire = c.wire[:have+n]
	if n > 0 || err == nil {
		return nil // an error comes again
	}
	if err == io.EOF && have > 0 {
		err = io.ErrUnexpectedEOF
	}
	if e, ok := err.(interface{ Temporary() bool }); !ok || !e.Temporary() {
		c.records.Fail(err)
	}
	return err
}

// release gives the buffer back when nothing is in it.
func (c *Conn) release() {
	if c.buf != nil && len(c.wire) == 0 && len(c.data) == 0 {
		buffers.Put(c.buf)
		c.buf, c.wire, c.data = nil, nil, nil
	}
}

// answer sends what a record wants to be answered with.
func (c *Conn) answer() {
	if !c.records.Owes() {
		return
	}
	c.writing.Lock()
	defer c.endWriting()
	ciphers.use(c)
	if out := c.records.Answer(nil); len(out) > 0 {
		c.send(out)
	}
}

// send sends records. writing is held.
func (c *Conn) send(out []byte) error {
	_, err := c.Conn.Write(out)
	if err != nil {
		c.records.FailOut(err)
	}
	return err
}

// Write sends data. After an error nothing more can be sent.
func (c *Conn) Write(b []byte) (n int, err error) {
	if err := c.Handshake(); err != nil {
		return 0, err
	}
	if c.stock != nil {
		return c.stock.Write(b)
	}
	c.writing.Lock()
	defer c.endWriting()
	if err := c.ended.Load(); err != nil {
		return 0, *err
	}
	ciphers.use(c)
	buf := buffers.Get().(*buffer)
	defer buffers.Put(buf)
	for {
		k := min(len(b)-n, 2*MaxPlaintext)
		out, err := c.records.Append(buf[:0], b[n:n+k])
		if err == nil && k > 0 {
			err = c.send(out)
		}
		if err != nil {
			return n, err
		}
		if n += k; n == len(b) {
			return n, nil
		}
	}
}

var errEarly = errors.New("tls: CloseWrite called before handshake complete")

// closeTimeout is how long Close waits for room for a close_notify. crypto/tls waits as long.
const closeTimeout = 5 * time.Second

// CloseWrite sends a close_notify. Nothing can be sent after it.
func (c *Conn) CloseWrite() error {
	switch {
	case !c.over.Load():
		return errEarly
	case c.stock != nil:
		return c.stock.CloseWrite()
	}
	c.writing.Lock()
	defer c.endWriting()
	return c.closeNotify()
}

func (c *Conn) closeNotify() error {
	ciphers.use(c)
	out := c.records.CloseNotify(nil)
	if len(out) == 0 {
		return nil
	}
	c.Conn.SetWriteDeadline(time.Now().Add(closeTimeout))
	_, err := c.Conn.Write(out)
	c.Conn.SetWriteDeadline(time.Now()) // as crypto/tls does: nothing may be sent
	return err
}

// Close sends a close_notify, unless a Write is at work, and closes the connection below.
func (c *Conn) Close() error {
	if !c.ended.CompareAndSwap(nil, &errClosed) {
		return net.ErrClosed
	}
	switch {
	case !c.over.Load():
		return c.Conn.Close()
	case c.stock != nil:
		return c.stock.Close()
	}
	var notified error
	if c.writing.TryLock() {
		notified = c.closeNotify()
		c.endWriting()
	}
	c.wipe()
	if err := c.Conn.Close(); err != nil {
		return err
	}
	if notified != nil {
		return fmt.Errorf("tls: failed to send closeNotify alert"+
			" (but connection was closed anyway): %w", notified)
	}
	return nil
}

var errClosed = net.ErrClosed

// Wipe ends the connection with an error, and overwrites the secrets, at once or when a call that
// uses them returns. It does not close the connection below.
func (c *Conn) Wipe(err error) {
	if c.over.Load() && c.stock == nil && c.ended.CompareAndSwap(nil, &err) {
		c.wipe()
	}
}

func (c *Conn) wipe() {
	if c.reading.TryLock() {
		c.endReading()
	}
	if c.writing.TryLock() {
		c.endWriting()
	}
}

// endReading unlocks. When the connection is closed, the secrets are overwritten by the last call
// that has the lock: Close first marks the connection, and then tries to lock.
func (c *Conn) endReading() {
	if !c.live.Load() {
		c.records.Drop()
	}
	c.reading.Unlock()
	if err := c.ended.Load(); err != nil && c.reading.TryLock() {
		c.records.Wipe(*err)
		c.data, c.wire = nil, nil
		c.release()
		c.reading.Unlock()
	}
}

func (c *Conn) endWriting() {
	if !c.live.Load() {
		c.records.DropOut()
	}
	c.writing.Unlock()
	if err := c.ended.Load(); err != nil && c.writing.TryLock() {
		c.records.WipeOut(*err)
		c.writing.Unlock()
	}
}
