package park

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/serving/parking"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/durations"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
	"github.com/socknotify/socknotify/metrics"
)

// A Server calls a handler for each message, and parks connections between messages and before the first one. An idle
// connection needs no goroutine and no buffer.
//
// The fields must be set before the first Serve, and not be changed after it. The zero value of a field is its default,
// and a negative number means none. A Server must not be copied.
type Server struct {
	// Handler is called when a connection has something to read. It reads one message, or several, and answers. If it
	// returns nil, the connection is parked until there is more to read. Otherwise the connection is closed. Before
	// Handler returns nil, it must have used every byte that it has read; a part of a message can be kept only in state that
	// Open has made. A bufio.Reader that lasts for one call would lose what it has read and not returned. Handler may be nil if
	// Open is set. It may block, and it runs on one goroutine at a time for each connection.
	// conn is the same value in every call. A panic is logged, counted in Stats.Panics, and closes the connection.
	Handler func(conn net.Conn) error
	// Open, if not nil, is called before the first call of Handler for a connection, when it has something to read, and
	// with TLS after the handshake. The function that it returns is called instead of Handler for that connection, and
	// can hold the connection's state. An error closes the connection.
	Open func(conn net.Conn) (handler func(net.Conn) error, err error)
	// Closed, if not nil, is called once for each connection that Handler or Open was called for, after the connection
	// was closed. err is what Handler or Open has returned; ErrIdle after IdleTimeout; ErrServerClosed because of
	// Shutdown or Close; a *PanicError; and otherwise the error of the connection. If Handler has returned the error of
	// a Read or Write that ReadTimeout or WriteTimeout has ended, err is ErrMessageTimeout or ErrSlow too. errors.Is and
	// errors.As find all of these.
	Closed func(conn net.Conn, err error)

	// TLSConfig is the configuration for ServeTLS.
	TLSConfig *tls.Config
	// CryptoTLS keeps a *tls.Conn for each TLS connection. Otherwise they are as those of TLSServer.
	CryptoTLS bool

	// IdleTimeout closes a connection that has sent nothing since it was accepted, or since its last message; 0 means
	// never. It is 0.2 seconds late, and some per cent on a busy machine.
	IdleTimeout time.Duration
	// ReadTimeout limits the time in which a call of Handler reads, so that half a message cannot hold a goroutine, and
	// WriteTimeout the time in which it writes. HandshakeTimeout limits a TLS handshake. All begin when the call or the
	// handshake does. 0 means 10 seconds. They are set as deadlines before Handler is called. A handler that reads or
	// writes for longer sets its own.
	ReadTimeout, WriteTimeout, HandshakeTimeout time.Duration

	// MaxConns bounds the number of connections, and MaxConnsPerAddr the number from one IP address; 0 means no limit. A
	// connection beyond a limit is closed when it is accepted. Behind a wrapper that reads the address from a header, as
	// go-proxyproto does, MaxConnsPerAddr applies when the header has come.
	MaxConns        int
	MaxConnsPerAddr int
	// MaxRunning bounds the number of calls of Handler and of TLS handshakes that run concurrently; 0 means no limit.
	// Connections that become ready at the limit wait, in order (Stats.Waiting). Connections that cannot be parked do not
	// count, nor do handshakes that begin at once, as Serve describes.
	MaxRunning int

	// Name is as in Config. TimeCalls makes the server measure how long each call of Handler takes, for Stats.CallTime.
	Name      string
	TimeCalls bool

	// Backend, Unwrap and Logger are as in Config. The Logger also receives panics, temporary errors of Accept, refused
	// connections, and, at the debug level, failed handshakes.
	Backend string
	Unwrap  func(net.Conn) net.Conn
	Logger  *slog.Logger

	tls       tlsServer
	mu        sync.Mutex
	lot       *Lot
	listeners map[*net.Listener]struct{} // pointers, because not every listener can be compared
	conns     map[*serverConn]struct{}
	addresses map[string]int
	fresh     int            // connections whose first message Shutdown waits for
	ending    serving.Ending // begun by Shutdown or Close; over when there are no listeners and no fresh connections
	refusing  bool           // Shutdown waits for no first message any more, or Close was called
	blocking  sync.WaitGroup // goroutines of connections that cannot be parked

	accepted, refused, refusedPerAddr, rejected, calls, handshakes atomic.Uint64
	idle, slow, message, late                                      atomic.Uint64 // of Stats.TimedOut
}

// Stats returns the current counters.
func (s *Server) Stats() (st Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lot != nil {
		st = s.lot.Stats()
	}
	st.Conns, st.Accepted = len(s.conns), s.accepted.Load()
	st.RefusedPerAddr = s.refusedPerAddr.Load()
	st.Refused = s.refused.Load() + st.RefusedPerAddr
	st.Calls = s.calls.Load()
	st.CryptoTLS = s.tls.kept.Load()
	st.Handshakes, st.Rejected = s.handshakes.Load(), s.rejected.Load()
	st.TimedOut = metrics.TimedOut{Idle: s.idle.Load(), Slow: s.slow.Load(), Message: s.message.Load(),
		Handshake: s.late.Load()}
	return st
}

// Ready reports whether the server accepts connections: at least one Serve runs, and neither Shutdown nor Close was
// called. It is for readiness checks, such as debug.Ready.
func (s *Server) Ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.ending.HasBegun() && len(s.listeners) > 0
}

// ListenAndServe listens on the address and calls Serve. network is one of "tcp", "tcp4", "tcp6" and "unix".
func (s *Server) ListenAndServe(network, address string) error {
	return listen(network, address, s.Serve)
}

// ListenAndServeTLS is ListenAndServe with TLS, as ServeTLS.
func (s *Server) ListenAndServeTLS(network, address, certFile, keyFile string) error {
	serve := func(l net.Listener) error { return s.ServeTLS(l, certFile, keyFile) }
	return listen(network, address, serve)
}

// ServeTLS is Serve with TLS. The files are read if TLSConfig has no certificate, or if they are not empty.
func (s *Server) ServeTLS(l net.Listener, certFile, keyFile string) error {
	config := new(tls.Config)
	if s.TLSConfig != nil {
		config = s.TLSConfig.Clone()
	}
	config, err := withCertificate(config, certFile, keyFile)
	if err != nil {
		if l != nil {
			l.Close()
		}
		return err
	}
	return s.serve(l, config)
}

// Serve accepts connections and serves them until the listener fails, or Shutdown or Close is called. It closes the
// listener. The listener may be one that wraps another, such as one of tls.NewListener, netutil.LimitListener or
// go-proxyproto. Serve always returns an error: socknotify.ErrInvalid for a field that makes no sense, ErrServerClosed,
// or that of the listener.
//
// A listener such as tls.NewListener(netutil.LimitListener(l, n), config) returns TLS connections over wrappers, which may
// hold the beginning of the handshake. Their handshakes therefore begin when the connection is accepted, each on a
// goroutine of its own, which MaxRunning does not bound. HandshakeTimeout, and not IdleTimeout, ends them if the peer is
// silent. ServeTLS with the LimitListener parks such connections before their first byte.
func (s *Server) Serve(l net.Listener) error { return s.serve(l, nil) }

func (s *Server) serve(l net.Listener, config *tls.Config) error {
	if l == nil {
		return fmt.Errorf("park: serve: %w: nil listener", socknotify.ErrInvalid)
	}
	defer l.Close()
	if err := s.begin(&l); err != nil {
		return err
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, &l)
		s.ending.Left(s.awaited())
	}()
	err := accept(l, s.ending.Begun(), func(conn net.Conn) { s.admit(conn, config) }, func(err error, wait time.Duration) {
		if !s.ending.HasBegun() {
			s.lot.engine.Log.Log(slog.LevelWarn, "cannot accept, trying again", "err", err, "retry_in", wait)
		}
	})
	if s.ending.HasBegun() {
		return ErrServerClosed
	}
	return fmt.Errorf("park: accept: %w", err)
}

// begin starts the server, if this is the first listener, and adds the listener.
func (s *Server) begin(l *net.Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending.HasBegun() {
		return ErrServerClosed
	}
	if s.Handler == nil && s.Open == nil {
		return fmt.Errorf("park: serve: %w: no Handler and no Open", socknotify.ErrInvalid)
	}
	if s.lot == nil {
		lot, err := New(Config{IdleTimeout: s.IdleTimeout, MaxRunning: s.MaxRunning, Backend: s.Backend, Name: s.Name,
			Unwrap: s.Unwrap, Logger: s.Logger})
		if err != nil {
			return err
		}
		s.lot = lot
		s.tls.set(s.CryptoTLS, nil)
		s.listeners = make(map[*net.Listener]struct{})
		s.conns = make(map[*serverConn]struct{})
		s.addresses = make(map[string]int)
	}
	s.listeners[l] = struct{}{}
	return nil
}

// Lots returns the server's lot, for observers such as package debug. It returns none before the first Serve. The server
// owns the lot.
func (s *Server) Lots() (lots []*Lot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lot != nil {
		lots = append(lots, s.lot)
	}
	return lots
}

// Shutdown closes the listeners and the connections that wait for a message, and waits until the handlers have returned;
// their connections are closed then. A connection that was accepted within the last five seconds has what is left of them
// for its TLS handshake and its first message, which is answered. If ctx is done first, Shutdown closes all connections, does
// not wait for handlers, and returns the cause of ctx. If ctx is nil, Shutdown does nothing and fails with
// socknotify.ErrInvalid.
func (s *Server) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("park: shutdown: %w: nil context", socknotify.ErrInvalid)
	}
	lot := s.stop(stopAccepting)
	if lot == nil {
		return nil
	}
	drain(ctx, lot.engine.Clock(), s.ending.Over(), s.closeSilent)
	s.end(false)
	done := make(chan struct{})
	go func() {
		s.blocking.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
		err = lot.Shutdown(ctx)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		s.Close()
	}
	return err
}

// Close closes the listeners and all connections. It does not wait for handlers. It always returns nil.
func (s *Server) Close() error {
	if s.stop(func(l net.Listener) { l.Close() }) != nil {
		s.end(true)
	}
	return nil
}

// stop closes the listeners by end. It returns nil if the server was not started.
func (s *Server) stop(end func(net.Listener)) *Lot {
	s.mu.Lock()
	lot := s.lot
	s.ending.Begin(s.awaited())
	var listeners []net.Listener
	for l := range s.listeners {
		listeners = append(listeners, *l)
	}
	s.mu.Unlock()
	for _, l := range listeners {
		end(l)
	}
	return lot
}

// awaited returns how many listeners and connections Shutdown waits for. The caller holds s.mu.
func (s *Server) awaited() int { return len(s.listeners) + s.fresh }

// closeSilent closes the connections that wait, but those whose time for the first message is not over. It returns when the
// next time is over, or zero if there is none.
func (s *Server) closeSilent() (next time.Time) {
	var waiting []*serverConn
	var parked []net.Conn
	now := s.lot.engine.Now()
	s.mu.Lock()
	for c := range s.conns {
		if due := c.accepted + serving.FirstRequestTime; c.fresh && now < due {
			if at := s.lot.engine.Time(due); next.IsZero() || at.Before(next) {
				next = at
			}
			continue
		}
		c.begun()
		if c.waiting {
			waiting = append(waiting, c)
		} else {
			parked = append(parked, c.conn)
		}
	}
	s.mu.Unlock()
	for _, c := range waiting {
		c.close()
	}
	for _, conn := range parked {
		s.lot.engine.Guard(conn, func() { s.lot.engine.Evict(conn) })
	}
	return next
}

// end closes the lot, and the connections that no handler runs for, or all of them.
func (s *Server) end(all bool) {
	var conns []*serverConn
	s.mu.Lock()
	s.refusing = true
	for c := range s.conns {
		if all || c.waiting {
			conns = append(conns, c)
		}
	}
	s.mu.Unlock()
	s.lot.Close()
	for _, c := range conns {
		c.close()
	}
}

// A serverConn is a connection of a Server.
type serverConn struct {
	server  *Server
	conn    *parking.Conn // set under Server.mu
	config  *tls.Config   // for a handshake that is to come, or nil
	handler func(net.Conn) error
	ready   func(net.Conn) // the method turn
	address string         // that is counted in Server.addresses, or empty
	due     time.Duration  // when IdleTimeout ends, since the lot's start; 0 is never

	accepted time.Duration // since the lot's start

	fresh   bool // the first message has not begun; under Server.mu
	opened  bool // Closed must be called
	counted bool // address is valid
	waiting bool // in Read, on a goroutine of its own; under Server.mu
}

// admit parks a new connection until its first byte. A panic of the connection's methods is logged, and closes it.
func (s *Server) admit(conn net.Conn, config *tls.Config) {
	c := &serverConn{server: s, conn: parking.Wrap(conn), config: config}
	c.ready = func(net.Conn) { c.run(c.turn) }
	cause := errGoexit
	defer func() {
		if cause != nil {
			c.end(cause)
		}
	}()
	cause = s.lot.engine.Try(conn, c.admit)
}

// admit is Server.admit for c.
func (c *serverConn) admit() {
	s, lot := c.server, c.server.lot
	socket, err := lot.engine.Find(c.conn.Conn)
	if serving.IsPanic(err) {
		c.end(err)
		return
	}
	known := err == nil && !socket.Lazy
	if known && !c.count() {
		return
	}
	s.mu.Lock()
	refuse, full := s.refusing, s.MaxConns > 0 && len(s.conns) >= s.MaxConns
	full = full && !refuse
	if refuse = refuse || full; !refuse {
		s.conns[c] = struct{}{}
		c.fresh, c.accepted = true, lot.engine.Now()
		s.fresh++
	}
	s.mu.Unlock()
	if full {
		s.refused.Add(1)
		lot.engine.Log.Log(serving.LevelLimit, "connection refused", "limit", "MaxConns")
	}
	if refuse {
		c.end(ErrServerClosed)
		return
	}
	s.accepted.Add(1)
	c.idle()
	if known {
		t, err := c.pendingTLS()
		if err != nil {
			c.end(err)
			return
		}
		if t != nil && !unwrap.Plain(t.NetConn()) {
			// The connection below t may hold the beginning of the handshake, so Park would call turn at once, and a silent
			// peer would occupy a worker until the handshake's timeout ends.
			c.spawn(c.handshakeApart)
			return
		}
	}
	if err := c.park(parking.Options{Fresh: true}); err != nil {
		c.failed(err)
	}
}

// handshakeApart performs the handshake on a goroutine of the connection's own, and then parks the connection.
func (c *serverConn) handshakeApart() {
	if !c.beginWait() || !c.arrived() {
		return
	}
	if c.endWait() {
		c.end(ErrServerClosed)
		return
	}
	if err := c.park(parking.Options{}); err != nil {
		c.failed(err)
	}
}

// PendingTLS returns the outermost layer whose TLS handshake is not complete, or nil if there is none.
// It fails with a *PanicError of the program's hook.
func (c *serverConn) pendingTLS() (unwrap.TLSConn, error) {
	return c.server.lot.engine.UnfinishedTLS(c.conn)
}

// count counts the connection for its address. If there are too many, it closes the connection and returns false.
func (c *serverConn) count() bool {
	s := c.server
	if s.MaxConnsPerAddr <= 0 || c.counted {
		return true
	}
	c.counted = true
	address := ""
	if a := c.conn.RemoteAddr(); a != nil {
		if address, _, _ = net.SplitHostPort(a.String()); address == "" {
			return true // not of IP
		}
	}
	s.mu.Lock()
	ok := s.addresses[address] < s.MaxConnsPerAddr
	if ok {
		s.addresses[address]++
		c.address = address
	}
	s.mu.Unlock()
	if !ok {
		s.refusedPerAddr.Add(1)
		s.lot.engine.Log.Log(serving.LevelLimit, "connection refused", "limit", "MaxConnsPerAddr", "remote", address)
		c.end(errTooMany)
	}
	return ok
}

// idle begins the idle timeout.
func (c *serverConn) idle() {
	if s := c.server; s.IdleTimeout > 0 {
		c.due = durations.Add(s.lot.engine.Now(), s.IdleTimeout)
	}
}

// begun is called when the first message has begun, or the connection has ended. The caller holds Server.mu.
func (c *serverConn) begun() {
	if c.fresh {
		c.fresh = false
		c.server.fresh--
		c.server.ending.Left(c.server.awaited())
	}
}

// over reports whether the connection must end instead of waiting for a message. The caller holds Server.mu.
func (c *serverConn) over() bool {
	return c.server.refusing || c.server.ending.HasBegun() && !c.fresh
}

// isOver is over for a caller without the lock.
func (c *serverConn) isOver() bool {
	s := c.server
	if !s.ending.HasBegun() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.over()
}

// park parks the connection with what is left of its idle timeout.
func (c *serverConn) park(o parking.Options) error {
	if c.isOver() {
		return parking.ErrClosed
	}
	o.IdleTimeout = -1
	if c.due != 0 {
		o.IdleTimeout = max(c.due-c.server.lot.engine.Now(), 1)
	}
	conn, lot := c.conn, c.server.lot
	if err := lot.engine.ParkWith(conn, o, c.ready); err != nil {
		return err
	}
	if c.isOver() {
		lot.engine.Evict(conn) // closeSilent may have seen the connection before it was parked
	}
	return nil
}

// failed handles an error of park: it serves the connection on a goroutine of its own, or ends it.
func (c *serverConn) failed(err error) {
	if !errors.Is(err, parking.ErrUnparkable) {
		if errors.Is(err, parking.ErrClosed) {
			err = ErrServerClosed
		}
		c.end(err)
		return
	}
	c.spawn(func() {
		for c.await() && c.callHere() {
			c.endCalls()
			c.idle()
		}
	})
}

// spawn runs f on a goroutine of the connection's own. It ends the connection instead if the server is closing.
func (c *serverConn) spawn(f func()) {
	s := c.server
	s.mu.Lock()
	over := c.over()
	if !over {
		s.blocking.Go(func() { c.run(f) })
	}
	s.mu.Unlock()
	if over {
		c.end(ErrServerClosed)
	}
}

// run calls f. If f panics or calls runtime.Goexit, run ends the connection.
func (c *serverConn) run(f func()) {
	returned := false
	defer func() {
		if !returned {
			c.end(errGoexit)
		}
	}()
	err := c.server.lot.engine.Log.Call(c.conn, f)
	returned = true
	if err != nil {
		c.end(err)
	}
}

// turn is the function of the parked connection.
func (c *serverConn) turn() {
	switch parking.Why(c.conn) {
	case parking.Expired:
		c.server.idle.Add(1)
		c.end(ErrIdle)
	case parking.Evicted:
		c.end(ErrServerClosed)
	default:
		c.serve()
	}
}

// serve handles what has arrived, and parks the connection again. What was read ahead is handled in the same turn, up to a
// limit, because other connections may wait for the worker.
func (c *serverConn) serve() {
	if !c.arrived() {
		return
	}
	ready, err := parking.HasInput(c.conn)
	if ready {
		for n := 1; ; n++ {
			if !c.call() {
				return
			}
			if n == parking.MaxCallsInRow || !parking.HasBytesAhead(c.conn) || c.server.lot.engine.IsClosing() {
				break
			}
		}
		c.endCalls()
		c.idle()
	}
	if err != nil {
		err = fmt.Errorf("park: %w: %w", parking.ErrUnparkable, err)
		if !parking.WasRefused(c.conn) {
			c.server.lot.engine.Refuse(c.conn, err)
		}
	} else {
		err = c.park(parking.Options{})
	}
	if err != nil {
		c.failed(err)
	}
}

// arrived handles what must be done once after the first byte: it counts the connection, and performs the handshake. It
// reports whether the connection is still open.
func (c *serverConn) arrived() bool {
	if c.config != nil {
		conn := net.Conn(c.conn)
		if unwrap.Plain(c.conn.Conn) && !parking.HasBytesAhead(c.conn) {
			conn = c.conn.Conn
		}
		secure := parking.Wrap(c.server.tls.server(conn, c.config))
		c.server.mu.Lock()
		c.conn = secure
		c.server.mu.Unlock()
		c.config = nil
	}
	t, err := c.pendingTLS()
	switch {
	case err != nil:
		c.end(err)
		return false
	case t == nil:
		return c.count()
	}
	s := c.server
	until := serving.Deadline(s.HandshakeTimeout)
	t.SetDeadline(until)
	shake := func() error { return t.HandshakeContext(context.Background()) }
	if err := c.try(shake); err != nil {
		if serving.TimedOut(err, until) {
			s.late.Add(1)
			err = fmt.Errorf("%w: %w", ErrHandshake, err)
		} else {
			s.rejected.Add(1)
		}
		s.lot.engine.Log.Log(serving.LevelBadPeer, "TLS handshake failed", "err", err, "remote", serving.Peer{Conn: t})
		c.end(err)
		return false
	}
	s.handshakes.Add(1)
	t.SetDeadline(time.Time{})
	return c.count()
}

// await waits in Read for a message. It reports whether there is one; otherwise the connection has ended.
func (c *serverConn) await() bool {
	s := c.server
	if !c.beginWait() || !c.arrived() {
		return false
	}
	var until time.Time
	if c.due != 0 {
		until = s.lot.engine.Time(c.due)
	}
	ready, err := parking.FillUntil(c.conn, until)
	switch {
	case c.endWait():
		err = ErrServerClosed
	case ready:
		return true
	case err == nil:
		s.idle.Add(1)
		err = ErrIdle
	case serving.TimedOut(err, until):
		s.idle.Add(1)
		err = fmt.Errorf("%w: %w", ErrIdle, err) // a wrapper's own error
	}
	c.end(err)
	return false
}

// beginWait marks the connection as one that Shutdown closes. If Shutdown does not wait for it, beginWait ends the connection
// and returns false.
func (c *serverConn) beginWait() bool {
	s := c.server
	s.mu.Lock()
	over := c.over()
	c.waiting = !over
	s.mu.Unlock()
	if over {
		c.end(ErrServerClosed)
	}
	return !over
}

// endWait ends what beginWait has begun. It reports whether the connection must end.
func (c *serverConn) endWait() (over bool) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	c.waiting = false
	return c.over()
}

// callHere is call on a goroutine of the connection's own.
func (c *serverConn) callHere() bool {
	lot := c.server.lot
	lot.engine.CountRunning(1)
	defer lot.engine.CountRunning(-1)
	return c.call()
}

// call calls the handler. It reports whether the connection is still open.
func (c *serverConn) call() bool {
	s, conn := c.server, c.conn
	read, write := serving.Deadline(s.ReadTimeout), serving.Deadline(s.WriteTimeout)
	conn.SetReadDeadline(read)
	if !write.IsZero() {
		conn.SetWriteDeadline(write)
	}
	s.calls.Add(1)
	var began time.Time
	if s.TimeCalls {
		began = time.Now()
	}
	err := c.try(func() (err error) {
		if !c.opened {
			c.opened = true
			s.mu.Lock()
			c.begun()
			s.mu.Unlock()
			c.handler = s.Handler
			if s.Open != nil {
				if c.handler, err = s.Open(conn); err != nil {
					return err
				}
				if c.handler == nil {
					return fmt.Errorf("park: %w: Open returned no handler", socknotify.ErrInvalid)
				}
			}
		}
		return c.handler(conn)
	})
	if s.TimeCalls {
		s.lot.engine.RecordCall(time.Since(began))
	}
	if err != nil {
		c.end(s.cause(err, read, write))
		return false
	}
	return true
}

// cause adds ErrMessageTimeout or ErrSlow to an error of Handler, if that is due to the deadlines of ReadTimeout or
// WriteTimeout, and counts it.
func (s *Server) cause(err error, read, write time.Time) error {
	var op *net.OpError
	writing := errors.As(err, &op) && op.Op == "write"
	switch {
	case writing && serving.TimedOut(err, write):
		s.slow.Add(1)
		return fmt.Errorf("%w: %w", ErrSlow, err)
	case !writing && serving.TimedOut(err, read):
		s.message.Add(1)
		return fmt.Errorf("%w: %w", ErrMessageTimeout, err)
	}
	return err
}

// endCalls is called after the last call before the connection is parked, or waits.
func (c *serverConn) endCalls() {
	if c.server.WriteTimeout >= 0 {
		c.conn.SetWriteDeadline(time.Time{}) // other goroutines may write to the parked connection
	}
}

// try calls f, and turns a panic into a *PanicError, which is logged and counted.
func (c *serverConn) try(f func() error) error { return c.server.lot.engine.Log.Guard(c.conn, f) }

// close closes the connection.
func (c *serverConn) close() {
	s := c.server
	s.mu.Lock()
	conn := c.conn
	s.mu.Unlock()
	s.lot.engine.Guard(conn, func() { conn.Close() })
}

// end ends the connection.
func (c *serverConn) end(err error) {
	s := c.server
	c.close()
	s.mu.Lock()
	delete(s.conns, c)
	c.begun()
	if c.address != "" {
		if s.addresses[c.address]--; s.addresses[c.address] == 0 {
			delete(s.addresses, c.address)
		}
		c.address = ""
	}
	s.mu.Unlock()
	if c.opened && s.Closed != nil {
		c.opened = false
		s.lot.engine.Log.Call(c.conn, func() { s.Closed(c.conn, err) })
	}
}
