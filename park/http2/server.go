package http2

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
	"github.com/socknotify/socknotify/park"
)

// A Server serves HTTP/2 connections, those of a park.HTTPServer whose field HTTP2 it is, or those
// that the program passes to ServeConn. Its fields must be set before the first connection and not
// be changed after it. It must not be copied. Its methods may be called concurrently.
type Server struct {
	// Server has the handler, the hooks ConnContext and ConnState, the timeouts and limits, ErrorLog
	// and the settings of HTTP/2, as for net/http. It must not be nil, except for a park.HTTPServer,
	// which sets it. ReadTimeout bounds the time in which a request's body must arrive, and
	// WriteTimeout the time of a request; both begin when the request's headers have arrived.
	// IdleTimeout begins when the last stream has ended; 0 means ReadTimeout. ReadHeaderTimeout, or
	// ReadTimeout if it is 0, bounds the time for which a connection may hold a part of a header
	// block, and without streams a part of any frame. HTTP2.WriteByteTimeout bounds each write of up
	// to 64 KiB.
	Server *http.Server
	// Linger is the time for which a connection keeps its goroutine when nothing arrives, before it is
	// parked: with streams up to twice as long. 0 means half a second; with a negative value a
	// connection is parked at once. A park.HTTPServer sets it, if it is 0.
	Linger time.Duration
	// ExtendedConnect makes the server take CONNECT requests with a protocol (RFC 8441), with which
	// browsers open WebSockets on a connection of HTTP/2. The handler gets them with the method
	// CONNECT and the protocol in Request.Header[":protocol"], as from net/http. Package websocket
	// serves them. Browsers that know of the extension send all WebSockets to the server that way,
	// so a handler that takes over connections of HTTP/1.1 alone, or a route for GET, would not
	// serve them any more. That is why the extension is off by default.
	ExtendedConnect bool
	// Backend, Unwrap, Name and Logger are as in park.Config. They are not used with a
	// park.HTTPServer.
	Backend string
	Unwrap  func(net.Conn) net.Conn
	Name    string
	Logger  *slog.Logger

	mu          sync.Mutex
	lot         *park.Lot
	conns       map[*conn]struct{}
	accepted    uint64
	closing     bool
	empty       chan struct{} // closed when closing is set and conns is empty
	noKeepAlive atomic.Bool
}

// Attach is called by a park.HTTPServer. It fails with http.ErrServerClosed after Shutdown or Close,
// and with socknotify.ErrInvalid if the server has a lot already.
func (s *Server) Attach(server *http.Server, lot *park.Lot, linger time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return http.ErrServerClosed
	}
	if s.lot != nil || s.Server != nil && s.Server != server {
		return fmt.Errorf("http2: %w: the Server is used already", socknotify.ErrInvalid)
	}
	s.Server, s.lot, s.conns = server, lot, make(map[*conn]struct{})
	if s.Linger == 0 {
		s.Linger = linger
	}
	return nil
}

// Stats returns the counters of the server's lot, and Conns and Accepted.
func (s *Server) Stats() (st park.Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lot != nil {
		st = s.lot.Stats()
	}
	st.Conns, st.Accepted = len(s.conns), s.accepted
	return st
}

// ServeConn takes over a connection that speaks HTTP/2 from its first byte, and returns. A
// *tls.Conn must have completed its handshake, and have negotiated "h2". Requests get contexts that
// are derived from ctx and outlive the call; nil means context.Background. If ServeConn fails, it
// has closed the connection: with http.ErrServerClosed after Shutdown or Close, with
// socknotify.ErrInvalid for a nil Server or connection, and for a *tls.Conn whose version or cipher
// suite HTTP/2 forbids, and with the errors of park.New.
//
// Requests get contexts that are derived from what the ConnContext hook returns for ctx.
func (s *Server) ServeConn(ctx context.Context, netConn net.Conn) error {
	return s.ServeReceived(ctx, netConn, nil)
}

// ServeReceived is ServeConn for a connection from which received was read. It keeps received.
func (s *Server) ServeReceived(ctx context.Context, netConn net.Conn, received []byte) error {
	_, err := s.begin(ctx, netConn, nil, received)
	return err
}

// NextProto is a value for the TLSNextProto map of an http.Server, with the key "h2". It returns
// when the connection has ended, because net/http closes the connection then; so net/http's
// goroutine stays, also while the connection is parked. The handler of srv is used, as net/http
// wraps it.
func (s *Server) NextProto(srv *http.Server, netConn *tls.Conn, handler http.Handler) {
	ctx := context.Background()
	if b, ok := handler.(interface{ BaseContext() context.Context }); ok {
		ctx = b.BaseContext()
	}
	c, err := s.begin(ctx, netConn, handler, nil)
	if err != nil {
		s.logf("http2: %v: %v", netConn.RemoteAddr(), err)
		return
	}
	<-c.done
}

// begin starts to serve a connection.
func (s *Server) begin(ctx context.Context, netConn net.Conn, handler http.Handler, received []byte) (*conn, error) {
	if s.Server == nil || netConn == nil {
		if netConn != nil {
			netConn.Close()
		}
		return nil, fmt.Errorf("http2: %w: Server or the connection is nil", socknotify.ErrInvalid)
	}
	if ctx == nil {
		ctx = context.Background()
	}
	if err := s.checkTLS(netConn); err != nil {
		netConn.Close()
		return nil, err
	}
	hooks := handler == nil // otherwise net/http has called them
	if hooks {
		handler = serverHandler{s.Server}
		ctx = context.WithValue(ctx, http.ServerContextKey, s.Server)
		if f := s.Server.ConnContext; f != nil {
			if ctx = f(ctx, netConn); ctx == nil {
				panic("ConnContext returned nil") // as net/http does
			}
		}
		ctx = context.WithValue(ctx, http.LocalAddrContextKey, netConn.LocalAddr())
	}
	c := newConn(s, ctx, netConn, handler)
	c.rest, c.hooks = received, hooks
	if err := s.add(c); err != nil {
		netConn.Close()
		return nil, err
	}
	if hooks {
		c.mu.Lock()
		c.changed(http.StateNew)
		c.unlock()
	}
	go c.serve(nil)
	return c, nil
}

// A serverHandler calls the handler of an http.Server as net/http does.
type serverHandler struct{ server *http.Server }

func (h serverHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch handler := h.server.Handler; {
	case r.RequestURI == "*" && r.Method == http.MethodOptions && !h.server.DisableGeneralOptionsHandler:
		w.Header().Set("Content-Length", "0")
		if r.ContentLength != 0 {
			io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 4<<10)) // as net/http does
		}
	case handler == nil:
		http.DefaultServeMux.ServeHTTP(w, r)
	default:
		handler.ServeHTTP(w, r)
	}
}

// SetKeepAlivesEnabled is like http.Server.SetKeepAlivesEnabled: with false, connections end when
// they have no streams.
func (s *Server) SetKeepAlivesEnabled(v bool) {
	s.noKeepAlive.Store(!v)
	if v {
		return
	}
	s.mu.Lock()
	conns := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	for _, c := range conns {
		c.goAway(true)
	}
}

// checkTLS refuses the cipher suites of TLS 1.2 that RFC 9113 (9.2.2) forbids, unless the server
// permits them.
func (s *Server) checkTLS(netConn net.Conn) error {
	t, ok := unwrap.AsTLS(netConn)
	if !ok {
		return nil
	}
	state := t.ConnectionState()
	name := tls.CipherSuiteName(state.CipherSuite)
	modern := state.Version >= tls.VersionTLS13 || state.Version == tls.VersionTLS12 &&
		(s.config().PermitProhibitedCipherSuites ||
			strings.HasPrefix(name, "TLS_ECDHE_") && (strings.Contains(name, "_GCM_") || strings.Contains(name, "_CHACHA20_")))
	if !state.HandshakeComplete || !modern {
		return fmt.Errorf("http2: %w: %s with %s, handshake complete: %t", socknotify.ErrInvalid,
			tls.VersionName(state.Version), name, state.HandshakeComplete)
	}
	return nil
}

// add counts a connection, and makes the lot for the first one.
func (s *Server) add(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return http.ErrServerClosed
	}
	if s.lot == nil {
		lot, err := park.New(park.Config{Backend: s.Backend, Unwrap: s.Unwrap, Name: s.Name, Logger: s.Logger})
		if err != nil {
			return fmt.Errorf("http2: %w", err)
		}
		s.lot, s.conns = lot, make(map[*conn]struct{})
	}
	s.conns[c] = struct{}{}
	s.accepted++
	return nil
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.closing && len(s.conns) == 0 {
		s.end()
	}
}

// end is called when the server refuses connections and has none. The caller holds s.mu.
func (s *Server) end() {
	close(s.empty)
	if s.lot != nil {
		s.lot.Close()
	}
}

// stop makes the server refuse connections, and returns those that there are. empty is closed when
// they have ended.
func (s *Server) stop() (conns []*conn, lot *park.Lot, empty chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.closing, s.empty = true, make(chan struct{})
		if len(s.conns) == 0 {
			s.end()
		}
	}
	return slices.Collect(maps.Keys(s.conns)), s.lot, s.empty
}

// Lots returns the server's lot, for observers such as package debug. It returns none before the
// first connection. The server owns the lot.
func (s *Server) Lots() (lots []*park.Lot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lot != nil {
		lots = append(lots, s.lot)
	}
	return lots
}

// Shutdown ends the connections with GOAWAY frames: streams that are open are served to their end,
// and later ones are not begun. A connection that has begun within the last five seconds, and has
// sent no request, has what is left of them for its first one, and GOAWAY follows that. Shutdown returns when the connections have ended and their handlers have
// returned, or fails with the cause of ctx when that is done first. From then on ServeConn fails
// with http.ErrServerClosed. A nil ctx fails with socknotify.ErrInvalid.
func (s *Server) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("http2: shutdown: %w: nil context", socknotify.ErrInvalid)
	}
	conns, lot, empty := s.stop()
	for _, c := range conns {
		c.goAway(false)
	}
	select {
	case <-empty:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if lot == nil {
		return nil
	}
	return lot.Shutdown(ctx)
}

// Close closes all connections at once. It does not wait for handlers, whose contexts are canceled.
// It returns nil.
func (s *Server) Close() error {
	conns, lot, _ := s.stop()
	for _, c := range conns {
		c.abort()
	}
	if lot != nil {
		lot.Close()
	}
	return nil
}

func (s *Server) logf(format string, args ...any) {
	if l := s.Server.ErrorLog; l != nil {
		l.Printf(format, args...)
	} else {
		log.Printf(format, args...)
	}
}
