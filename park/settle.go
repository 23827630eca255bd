package park

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"time"

	"github.com/socknotify/socknotify/internal/unwrap"
)

// Some wrappers read a header when they are first used. go-proxyproto does: its first Read, and the first call of
// RemoteAddr, wait for the PROXY header, and a read deadline that passes makes the wrapper take the header for missing.
// So Park must not read ahead from such a connection before its header was read, and must not wait for the header
// either. A worker does that: it calls RemoteAddr, reads ahead, and then either runs the function or parks the
// connection again. The connection is settled from then on.
//
// Whether the header was read before the first Park cannot be asked. So a worker settles the connection at once, unless
// Park knows that the connection is fresh from Accept; then nothing but the header can be first, and the lot waits for
// the socket before a worker is needed.

// takeUnsettled reports whether c is to be settled, and clears the mark.
func (c *Conn) takeUnsettled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.unsettled
	c.unsettled = false
	return was
}

// settle settles the connection of c, if that is needed. It reports whether it has parked the connection again, so that
// c must not be made.
func (l *Lot) settle(w *worker, pc *parkedConn, c call) (again bool) {
	conn, ok := c.conn.(*Conn)
	if !ok || c.why != readable || !conn.takeUnsettled() {
		return false
	}
	ready := true
	l.guard(conn, func() {
		conn.RemoteAddr()
		var err error
		if ready, err = conn.readAhead(l.config.Unwrap); err != nil {
			ready = true // its function reads without a deadline, as before
			l.refuse(conn, fmt.Errorf("park: %w: %w", ErrUnparkable, err))
			conn.refused = true
		}
		conn.SetReadDeadline(time.Time{})
	})
	if ready {
		return false
	}
	s, err := l.find(conn)
	if err != nil {
		return false // its function finds the reason
	}
	idle := time.Duration(-1)
	if c.due != 0 {
		idle = max(c.due-time.Since(l.start), 1)
	}
	pc.mu.Lock()
	if pc.runner == w {
		pc.runner = nil
	}
	pc.mu.Unlock()
	return l.register(&parkRequest{base: s.Conn, raw: s.Raw, conn: conn, f: c.fn, idle: idle, how: settled}) == nil
}

// guard calls f, which calls a method of conn. It reports whether f returned, and logs a panic.
func (l *Lot) guard(conn net.Conn, f func()) (ok bool) {
	defer func() {
		if err := recover(); err != nil {
			buf := make([]byte, 16<<10)
			l.log(slog.LevelError, "park: a method of a parked connection panicked", "type", typeOf(conn), "panic",
				fmt.Sprint(err), "stack", string(buf[:runtime.Stack(buf, false)]))
		}
	}()
	f()
	return true
}

// typeOf returns the name of the type of conn, or of the connection in a Conn.
func typeOf(conn net.Conn) string {
	if c, ok := conn.(*Conn); ok {
		conn = c.Conn
	}
	return fmt.Sprintf("%T", conn)
}

// refuse counts a connection that cannot be parked, and logs the first one of its type. It returns err.
func (l *Lot) refuse(conn net.Conn, err error) error {
	if !errors.Is(err, ErrUnparkable) {
		return err
	}
	l.stats.unparkable.Add(1)
	if _, known := l.unfit.LoadOrStore(typeOf(conn), true); known {
		return err
	}
	var cause *unwrap.UnfitError
	remedy := "give the type a NetConn method that returns the connection below it, or set Unwrap"
	if errors.As(err, &cause) {
		remedy = "let Read return the bytes that the connection holds, and os.ErrDeadlineExceeded if the read deadline has passed"
	}
	l.log(slog.LevelWarn, "park: connections of this type are not parked, and keep a goroutine each", "type", typeOf(conn),
		"error", err, "remedy", remedy)
	return err
}

// log writes to the lot's logger.
func (l *Lot) log(level slog.Level, message string, args ...any) {
	logger := l.config.Logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.Log(context.Background(), level, message, args...)
}
