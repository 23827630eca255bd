package tlsrecord

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A Conn is a server's TLS connection, as a net.Conn. It has the methods of a *tls.Conn that a
// server uses. crypto/tls makes the handshake, and keeps the connection if Take fails.
//
// What is not needed while the connection is idle is behind pointers that are nil then.
type Conn struct {
	net.Conn // below; its deadlines and addresses are the connection's

	// stock is nil once the connection was taken over from crypto/tls. Then state does not change
	// any more, and the pump does all.
	stock atomic.Pointer[stock]
	state State
	pump  Pump

	writing sync.Mutex // the pump's sending lock
	unsent  *unsent    // nil if all records were sent
}

// An unsent is the rest of records that a Socket has not taken. It is sent before anything else.
type unsent struct {
	out  []byte // if owes is set, it may be empty: an answer has sent it
	owes bool   // the last byte of data in out was not counted by TryWrite
}

// A Socket is that of the connection below. Its methods return less than was asked for, which may be
// 0, and no error, where they would wait, or wait for longer than the caller wants.
type Socket interface {
	Read([]byte) (int, error)
	Write([]byte) (int, error)
}

// A stock is the part of crypto/tls in a connection: the handshake, and everything after it if
// crypto/tls keeps the connection.
type stock struct {
	shaking sync.Mutex
	config  *tls.Config
	options *Options
	err     error                    // of the handshake
	conn    atomic.Pointer[tls.Conn] // set if crypto/tls keeps the connection
}

// Options are what the connections of a server have in common.
type Options struct {
	// Keep, which may be nil, is called after a handshake, and returns true for a connection that
	// must stay with crypto/tls.
	Keep func(tls.ConnectionState) bool
	// Ahead, which may be nil, has buffers to receive into as much as there is. Then Ahead of a
	// connection that stays with crypto/tls returns what that has not read. Otherwise no more is
	// received than crypto/tls asks for, so that a connection that fails has as many bytes unread.
	Ahead *Buffers
	// Kept, which may be nil, is called for each connection that stays with crypto/tls although Keep
	// is nil or has returned false, with the reason.
	Kept func(why error)
}

// buffers are for two records, in each direction.
var buffers = NewBuffers(func() *Buffer {
	b := new(struct {
		Buffer
		room [2 * MaxRecord]byte
	})
	b.B = b.room[:]
	return &b.Buffer
})

// Server returns a server's side of a TLS connection. The handshake is made when it is first used.
func Server(conn net.Conn, config *tls.Config, options *Options) *Conn {
	if options == nil {
		options = new(Options)
	}
	c := &Conn{Conn: conn}
	c.stock.Store(&stock{config: config, options: options})
	return c
}

// Handshake makes the handshake unless it has been made.
func (c *Conn) Handshake() error { return c.HandshakeContext(context.Background()) }

// HandshakeContext is Handshake, and closes the connection below when ctx is done.
func (c *Conn) HandshakeContext(ctx context.Context) error {
	_, err := c.handshake(ctx)
	return err
}

// handshake makes the handshake unless it has been made. It returns the connection of crypto/tls if
// that keeps it, and otherwise nil.
func (c *Conn) handshake(ctx context.Context) (*tls.Conn, error) {
	s := c.stock.Load()
	if s == nil {
		return nil, nil
	}
	if kept := s.conn.Load(); kept != nil {
		return kept, nil
	}
	s.shaking.Lock()
	defer s.shaking.Unlock()
	if c.stock.Load() != nil && s.conn.Load() == nil && s.err == nil {
		s.err = c.shake(ctx, s)
	}
	return s.conn.Load(), s.err
}

// shake makes the handshake, and takes the connection over if that is possible.
func (c *Conn) shake(ctx context.Context, s *stock) error {
	w := &wire{Conn: c.Conn, ahead: s.options.Ahead}
	t := tls.Server(w, w.Config(s.config, c.Conn))
	if err := t.HandshakeContext(ctx); err != nil {
		return err
	}
	c.take(s, t, w)
	return nil
}

// take takes the connection over from crypto/tls, if that is possible.
func (c *Conn) take(s *stock, t *tls.Conn, w *wire) {
	state := t.ConnectionState()
	keep, kept := s.options.Keep, s.options.Kept
	s.config, s.options = nil, nil
	w.over = true
	if keep != nil && keep(state) {
		w.wipe()
		s.conn.Store(t)
		return
	}
	records, err := w.Take(&state)
	if err != nil {
		if kept != nil {
			kept(err)
		}
		s.conn.Store(t)
		return
	}
	w.dead.Store(true)
	state.TLSUnique = bytes.Clone(state.TLSUnique) // it points into t
	c.state, c.pump.Records = newState(state), *records
	c.pump.Feed(w.rest, cmp.Or(w.ahead, buffers))
	w.took(len(w.rest))
	c.stock.Store(nil)
}

// Attach returns a connection that goes on with a pump, whose records and received bytes it takes,
// and what its handshake has agreed upon. conn is below it. The caller holds the pump's locks.
func Attach(conn net.Conn, pump *Pump, state State) *Conn {
	c := &Conn{Conn: conn, state: state}
	pump.move(&c.pump)
	return c
}

// Detach gives the records and the received bytes of a connection to a pump that has none, if it
// was taken over from crypto/tls, and returns what its handshake has agreed upon. The connection is
// closed then, but not the one below. It returns false if the connection was not taken over, is
// closed, or if a call of it is under way.
func (c *Conn) Detach(pump *Pump) (State, bool) {
	if !c.Taken() || c.unsent != nil || !c.pump.reading.TryLock() {
		return State{}, false
	}
	defer c.pump.Unlock()
	if !c.writing.TryLock() {
		return State{}, false
	}
	defer c.pump.UnlockOut(&c.writing)
	if !c.pump.end() {
		return State{}, false
	}
	c.pump.move(pump)
	return c.state, true
}

// over reports whether the handshake is.
func (c *Conn) over() bool {
	s := c.stock.Load()
	return s == nil || s.conn.Load() != nil
}

// Stock returns the connection of crypto/tls if that keeps it. Otherwise, and before the handshake,
// it returns nil.
func (c *Conn) Stock() *tls.Conn {
	if s := c.stock.Load(); s != nil {
		return s.conn.Load()
	}
	return nil
}

// Ahead returns how many bytes were received and not given to crypto/tls, and of how many records it
// was given the header until now. It is for a connection that stays with crypto/tls, with
// Options.Ahead, and for the goroutine that reads.
func (c *Conn) Ahead() (n, records int) {
	if kept := c.Stock(); kept != nil {
		w := kept.NetConn().(*wire)
		n, records = len(w.rest), w.cut.records
	}
	return n, records
}

// A wire is the connection below crypto/tls.
type wire struct {
	net.Conn
	Handshake
	ahead *Buffers
	buf   *Buffer     // that rest is in, or nil
	rest  []byte      // received, and not given to crypto/tls
	over  bool        // the handshake is; changed before the program has the connection
	dead  atomic.Bool // crypto/tls may not use the connection any more
}

// wireBuffers have room for the usual messages of a client. They are small, because one is kept
// while the client is waited for.
var wireBuffers = NewBuffers(func() *Buffer { return &Buffer{B: make([]byte, 4<<10)} })

func (w *wire) Write(b []byte) (int, error) {
	if w.dead.Load() {
		return 0, net.ErrClosed
	}
	n, err := w.Conn.Write(b)
	if !w.over {
		w.Sent(b[:n])
	}
	return n, err
}

// Read returns no more than the current record has, so that crypto/tls does not have the beginning
// of the next one when the handshake is over, and later with Options.Ahead. See there for what it
// receives.
func (w *wire) Read(b []byte) (n int, err error) {
	switch {
	case w.dead.Load():
		return 0, net.ErrClosed
	case len(w.rest) > 0:
	case w.ahead != nil:
		err = w.fill(w.ahead, math.MaxInt)
	case w.over:
		return w.Conn.Read(b)
	default:
		err = w.fill(wireBuffers, len(b))
	}
	if n = min(len(b), len(w.rest)); n == 0 {
		return 0, err
	}
	if !w.over || w.ahead != nil {
		n = w.Part(w.rest[:n])
	}
	copy(b, w.rest[:n])
	w.took(n)
	return n, nil // an error comes again
}

// fill receives once, at most most bytes.
func (w *wire) fill(from *Buffers, most int) error {
	w.buf = from.Get()
	n, err := w.Conn.Read(w.buf.B[:min(most, len(w.buf.B))])
	w.rest = w.buf.B[:n]
	w.took(0)
	return err
}

// took removes bytes from the rest.
func (w *wire) took(n int) {
	if w.rest = w.rest[n:]; len(w.rest) == 0 && w.buf != nil {
		w.buf.Free()
		w.buf = nil
	}
}

// ConnectionState returns what the handshake has agreed upon. Before that it is zero.
func (c *Conn) ConnectionState() tls.ConnectionState {
	s := c.stock.Load()
	if s == nil {
		return c.state.Unpack()
	}
	if kept := s.conn.Load(); kept != nil {
		return kept.ConnectionState()
	}
	return tls.ConnectionState{}
}

// NetConn returns the connection below. Bytes that are read from it or written to it are missing
// here.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Read reads data, of at most one record. The errors are those of a *tls.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	kept, err := c.handshake(context.Background())
	switch {
	case err != nil:
		return 0, err
	case kept != nil:
		return kept.Read(b)
	case len(b) == 0:
		return 0, nil
	}
	return c.TryRead(b, nil)
}

// Taken reports whether the connection was taken over from crypto/tls, which TryRead and TryWrite
// need.
func (c *Conn) Taken() bool { return c.stock.Load() == nil }

// TryRead is Read through the socket of the connection below, and does not wait. It returns 0 and
// no error if there is no whole record. With a nil Socket it is Read.
func (c *Conn) TryRead(b []byte, s Socket) (n int, err error) {
	p := &c.pump
	p.Lock()
	defer p.Unlock()
	for {
		n, err = p.Read(c, b, buffers, func(b []byte) (int, error) { return c.receive(b, s) })
		c.answer(s)
		if n > 0 || err != nil || len(b) == 0 {
			break
		}
	}
	switch {
	case err == ErrNothing:
		err = nil
	case n > 0 && !p.HasData():
		// A close_notify behind the data is returned with it, so that a program that reuses
		// connections does not take this one for open. crypto/tls does so too.
		if p.ReadAlert(c) {
			c.answer(s)
		}
		err = p.Err()
	}
	return n, err
}

// receive receives from the socket if s is not nil.
func (c *Conn) receive(b []byte, s Socket) (int, error) {
	if s == nil {
		return c.Conn.Read(b)
	}
	n, err := s.Read(b)
	if n == 0 && err == nil {
		err = ErrNothing
	}
	return n, err
}

// Arrived reports whether TryRead returns something without the socket.
func (c *Conn) Arrived() bool {
	c.pump.Lock()
	defer c.pump.Unlock()
	return c.pump.Arrived()
}

// answer sends what a record wants to be answered with, by the socket if s is not nil. What that
// does not take now is sent later.
func (c *Conn) answer(s Socket) {
	if !c.pump.Owes() {
		return
	}
	c.writing.Lock()
	defer c.pump.UnlockOut(&c.writing)
	c.pump.Use(c)
	if !c.sendRest(s) {
		return
	}
	if out := c.pump.Answer(nil); len(out) > 0 {
		c.send(out, s)
	}
}

// send sends records. The socket, if s is not nil, may leave a part of them unsent. writing is
// held.
func (c *Conn) send(out []byte, s Socket) error {
	n, err := len(out), error(nil)
	if s != nil {
		n, err = s.Write(out)
	} else {
		_, err = c.Conn.Write(out)
	}
	switch {
	case err != nil:
		c.pump.FailOut(err)
	case n < len(out) && c.unsent != nil:
		c.unsent.out = append(c.unsent.out, out[n:]...)
	case n < len(out):
		c.unsent = &unsent{out: bytes.Clone(out[n:])}
	}
	return err
}

// sendRest sends what was left unsent. It reports whether all of that is sent. writing is held.
func (c *Conn) sendRest(s Socket) bool {
	rest := c.unsent
	if rest == nil || len(rest.out) == 0 {
		return true
	}
	out := rest.out
	if rest.out = nil; !rest.owes {
		c.unsent = nil
	}
	return c.send(out, s) == nil && (c.unsent == nil || len(c.unsent.out) == 0)
}

// Write sends data. After an error nothing more can be sent.
func (c *Conn) Write(b []byte) (n int, err error) {
	kept, err := c.handshake(context.Background())
	switch {
	case err != nil:
		return 0, err
	case kept != nil:
		return kept.Write(b)
	}
	return c.TryWrite(b, nil)
}

// TryWrite is Write through the socket of the connection below, and does not wait: it returns how
// much was sent. A record that was sent in part counts but for its last byte. So the caller comes
// back with that byte, when the socket takes more, and the next call must begin with it. With a nil
// Socket it is Write.
func (c *Conn) TryWrite(b []byte, s Socket) (n int, err error) {
	c.writing.Lock()
	defer c.pump.UnlockOut(&c.writing)
	switch {
	case c.pump.ended.Load():
		return 0, net.ErrClosed
	case len(b) == 0 && c.unsent != nil:
		return 0, nil
	}
	c.pump.Use(c)
	if !c.sendRest(s) {
		_, err := c.pump.Append(nil, nil)
		return 0, err
	}
	if c.unsent != nil { // its last byte is the first one of b
		n, c.unsent = 1, nil
	}
	buf := buffers.Get()
	defer buf.Free()
	for {
		k := min(len(b)-n, 2*MaxPlaintext)
		out, err := c.pump.Append(buf.B[:0], b[n:n+k])
		if err == nil && k > 0 {
			err = c.send(out, s)
		}
		switch {
		case err != nil:
			return n, err
		case c.unsent != nil:
			c.unsent.owes = true // k is not 0
			return n + k - 1, nil
		}
		if n += k; n == len(b) {
			return n, nil
		}
	}
}

// Unsent returns the number of bytes that TryWrite has counted and not sent.
func (c *Conn) Unsent() int {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.unsent == nil {
		return 0
	}
	return len(c.unsent.out)
}

var errEarly = errors.New("tls: CloseWrite called before handshake complete")

// closeTimeout is how long Close waits for room for a close_notify. crypto/tls waits as long.
const closeTimeout = 5 * time.Second

// CloseWrite sends a close_notify. Nothing can be sent after it.
func (c *Conn) CloseWrite() error {
	if !c.over() {
		return errEarly
	}
	if kept := c.Stock(); kept != nil {
		return kept.CloseWrite()
	}
	c.writing.Lock()
	defer c.pump.UnlockOut(&c.writing)
	return c.closeNotify()
}

func (c *Conn) closeNotify() error {
	c.pump.Use(c)
	out := c.pump.CloseNotify(nil)
	if len(out) == 0 {
		return nil
	}
	if rest := c.unsent; rest != nil {
		c.unsent, out = nil, append(rest.out, out...)
	}
	c.Conn.SetWriteDeadline(time.Now().Add(closeTimeout))
	_, err := c.Conn.Write(out)
	c.Conn.SetWriteDeadline(time.Now()) // as crypto/tls does: nothing may be sent
	return err
}

// Close sends a close_notify, unless a Write is at work, and closes the connection below.
func (c *Conn) Close() error {
	if !c.pump.end() {
		return net.ErrClosed
	}
	if !c.over() {
		return c.Conn.Close()
	}
	if kept := c.Stock(); kept != nil {
		return kept.Close()
	}
	var notified error
	if c.writing.TryLock() {
		notified = c.closeNotify()
		c.pump.UnlockOut(&c.writing)
	}
	c.pump.wipe(&c.writing)
	if err := c.Conn.Close(); err != nil {
		return err
	}
	if notified != nil {
		return fmt.Errorf("tls: failed to send closeNotify alert"+
			" (but connection was closed anyway): %w", notified)
	}
	return nil
}

// Wipe ends the connection with an error, and overwrites the secrets, at once or when a call that
// uses them returns, whose error is then the latest. It does not close the connection below.
func (c *Conn) Wipe(err error) {
	if c.stock.Load() != nil {
		return
	}
	in, out := c.pump.reading.TryLock(), c.writing.TryLock()
	if in {
		c.pump.wipeIn(err)
		c.pump.reading.Unlock()
	}
	if out {
		c.pump.WipeOut(err)
		c.writing.Unlock()
	}
	if (!in || !out) && c.pump.end() {
		c.pump.wipe(&c.writing)
	}
}
