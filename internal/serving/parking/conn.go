package parking

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// A Conn wraps a connection that may have read bytes ahead, such as a *tls.Conn. There is no method to ask for such
// bytes. So Park reads from the wrapped connection with a deadline in the past, which returns buffered bytes and does
// not read from the socket. The Conn keeps the result in a pooled buffer until Read has returned all of it.
//
// The methods of a Conn may be called concurrently if those of the wrapped connection may.
type Conn struct {
	net.Conn

	mu         sync.Mutex
	handshaken bool  // the TLS handshakes of all layers are complete
	why        Cause // of the latest call; used only by its function
	refused    bool  // settle has counted it as unparkable; used only by its function
	unsettled  bool  // its function was not called, and must be preceded by settle; used only by its owner
	closed     atomic.Bool
	ahead      *readAheadBuffer // nil if no bytes were read ahead

	// parkedConn is the lot's record of the connection, set by its latest call.
	parkedConn atomic.Pointer[parkedConn]
}

// A readAheadBuffer holds the result of reading ahead. It belongs to one Conn as long as it holds bytes or an error.
type readAheadBuffer struct {
	from, to int   // buf[from:to] is unread
	err      error // returned after the bytes
	buf      [ReadAheadSize]byte
}

// ReadyWait is the time that a worker waits for the bytes of a connection that became readable. There may be only a part of
// a TLS record, or nothing.
const ReadyWait = 5 * time.Millisecond

// ReadAheadSize is the maximum length of the plaintext of a TLS record.
const ReadAheadSize = 16 << 10

var readAheadBuffers = sync.Pool{New: func() any { return new(readAheadBuffer) }}

// Wrap returns a Conn that wraps conn. If conn is a *Conn, Wrap returns conn itself.
func Wrap(conn net.Conn) *Conn {
	if c, ok := conn.(*Conn); ok {
		return c
	}
	return &Conn{Conn: conn}
}

// NetConn returns the wrapped connection.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// CloseWrite calls CloseWrite of the wrapped connection. It fails with errors.ErrUnsupported if there is no such
// method.
func (c *Conn) CloseWrite() error { return CloseWrite(c.Conn) }

// Read first returns the bytes that Park has read ahead, and then the error that ended reading ahead, if there was
// one. After that it reads from the wrapped connection.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) > 0 {
		if n, err := Drain(c, p); n > 0 || err != nil {
			return n, err
		}
	}
	return c.Conn.Read(p)
}

// Drain reads from the buffer. It returns 0 and no error if the buffer is empty.
func Drain(c *Conn, p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.ahead
	if a == nil {
		return 0, nil
	}
	if a.from < a.to {
		n = copy(p, a.buf[a.from:a.to])
		a.from += n
	} else {
		err, a.err = a.err, nil
	}
	if a.from == a.to && a.err == nil {
		c.releaseBuffer()
	}
	return n, err
}

// ReadPast reads from a connection: what a Conn has read ahead, or else from below it, where a read
// that would wait may say so by an *unwrap.UnfitError.
func ReadPast(conn net.Conn, b []byte) (n int, err error) {
	c, wrapped := conn.(*Conn)
	if !wrapped {
		return unwrap.ReadPast(conn, b)
	}
	if n, err = Drain(c, b); n > 0 || err != nil {
		return n, err
	}
	return unwrap.ReadPast(c.Conn, b)
}

// releaseBuffer returns the buffer to the pool. The caller holds c.mu.
func (c *Conn) releaseBuffer() {
	a := c.ahead
	if a == nil {
		return
	}
	c.ahead = nil
	a.from, a.to, a.err = 0, 0, nil
	readAheadBuffers.Put(a)
}

// Close closes the wrapped connection and discards bytes that were read ahead. The Close method of the wrapped connection
// is called once, because some count connections; further calls fail with net.ErrClosed.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return fmt.Errorf("park: close: %w", net.ErrClosed)
	}
	err := c.Conn.Close() // before the lock: it ends a Read in fill, which holds the lock
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releaseBuffer()
	return err
}

// HasBytesAhead reports whether c holds bytes or an error from reading ahead.
func HasBytesAhead(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead != nil
}

// holdsBytes reports whether a Conn at or below c, such as one that a Listener has returned, holds bytes.
func (l *Lot) holdsBytes(c *Conn) bool {
	return unwrap.Any(c, l.config.Unwrap, func(conn net.Conn) bool {
		in, ok := conn.(*Conn)
		return ok && HasBytesAhead(in)
	})
}

// readAhead reads the bytes that the wrapped connection holds. It reports whether Read would return without the socket.
// err is an *unwrap.UnfitError, or a *PanicError of the program's hook.
//
// A deadline in the past does no harm to a *tls.Conn: package tls treats a read error as final unless it is a temporary
// net.Error, which a deadline error is, and a later Read continues with a partial record. But during a handshake every
// error is final. So readAhead does nothing before the handshakes are complete; no application bytes can have been read
// by then.
func (c *Conn) readAhead(l *Lot) (ready bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead != nil {
		return true, nil
	}
	t, err := c.pendingTLS(l)
	if err != nil {
		return false, err
	}
	if t != nil {
		return !unwrap.Plain(t.NetConn()), nil // a wrapper below may hold the beginning of the handshake
	}
	return c.fill(unwrap.ReadAhead)
}

// fill reads ahead by read, which is unwrap.ReadAhead, or unwrap.ReadPast under the deadline that is set. It reports
// whether Read would return without the socket. err is an *unwrap.UnfitError. The caller holds c.mu.
func (c *Conn) fill(read func(net.Conn, []byte) (int, error)) (ready bool, err error) {
	if c.ahead != nil {
		return true, nil
	}
	a := readAheadBuffers.Get().(*readAheadBuffer)
	defer func() {
		if c.ahead != a { // also if Read panicked
			a.from, a.to, a.err = 0, 0, nil
			readAheadBuffers.Put(a)
		}
	}()
	a.to, err = read(c.Conn, a.buf[:])
	switch {
	case a.to > 0:
		if !errors.Is(err, os.ErrDeadlineExceeded) { // the lot's deadline
			a.err = err
		}
	case err == nil:
		return false, nil
	case unwrap.IsUnfit(err):
		return false, err
	default:
		a.err = err
	}
	c.ahead = a
	return true, nil
}

// FillUntil waits until the deadline for something to read. The results are those of fill.
func FillUntil(c *Conn, deadline time.Time) (ready bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.SetReadDeadline(deadline)
	return c.fill(unwrap.ReadPast)
}

// HasInput reports whether a Read would return at once. A connection may have become readable by a part of a TLS record,
// or by a record without data. err is an *unwrap.UnfitError.
func HasInput(c *Conn) (ready bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead != nil || unwrap.Plain(c.Conn) || c.SetReadDeadline(time.Now().Add(ReadyWait)) != nil {
		return true, nil
	}
	return c.fill(unwrap.ReadPast)
}

// Why returns why the function of a parked connection runs, for that function.
func Why(c *Conn) Cause { return c.why }

// WasRefused reports, to the function of a connection, whether it was counted as one that cannot be parked.
func WasRefused(c *Conn) bool { return c.refused }

// pendingTLS returns the outermost layer whose TLS handshake is not complete, or nil if there is none. It fails with a
// *PanicError of the program's hook. The caller holds c.mu.
func (c *Conn) pendingTLS(l *Lot) (t unwrap.TLSConn, err error) {
	if c.handshaken {
		return nil, nil
	}
	if err := l.Try(c, func() { t = unwrap.PendingTLS(c.Conn, l.config.Unwrap) }); err != nil {
		return nil, err
	}
	c.handshaken = t == nil
	return t, nil
}

// UnfinishedTLS is pendingTLS for a caller without the lock.
func (l *Lot) UnfinishedTLS(c *Conn) (unwrap.TLSConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pendingTLS(l)
}

type CloseWriter interface{ CloseWrite() error }

// CloseWrite calls CloseWrite of a connection, if it has the method.
func CloseWrite(conn net.Conn) error {
	if w, ok := conn.(CloseWriter); ok {
		return w.CloseWrite()
	}
	return fmt.Errorf("park: CloseWrite: %w", errors.ErrUnsupported)
}

// HalfCloser returns what closes the one half of a connection, also of one in a [*Conn], or nil.
func HalfCloser(conn net.Conn) CloseWriter {
	if c, ok := conn.(*Conn); ok {
		conn = c.Conn
	}
	w, _ := conn.(CloseWriter)
	return w
}

// Find returns the socket below conn. It fails with a *PanicError of the program's hook. For a Conn
// that was parked before it does not call the hook, so it may be called under a lock then.
func (l *Lot) Find(conn net.Conn) (s unwrap.Socket, err error) {
	if c, ok := conn.(*Conn); ok {
		if pc := c.parkedConn.Load(); pc != nil {
			if raw, err := pc.base.SyscallConn(); err == nil {
				return unwrap.Socket{Conn: pc.base, Raw: raw}, nil
			}
		}
	}
	if p := l.Try(conn, func() { s, err = unwrap.Find(conn, l.config.Unwrap) }); p != nil {
		return s, p
	}
	if err == nil {
		return s, nil // before opaque, which is allocated
	}
	var opaque *unwrap.OpaqueError
	switch {
	case errors.As(err, &opaque):
		return s, fmt.Errorf("park: %w: %w", ErrUnparkable, err)
	case s.Plain: // its SyscallConn has failed
		return s, fmt.Errorf("park: %w", err)
	}
	return s, fmt.Errorf("park: %w: %w", socknotify.ErrInvalid, err)
}
