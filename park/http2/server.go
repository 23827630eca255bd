package http2

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/park"
)

// A Server serves HTTP/2 connections. Its fields must be set before the first connection and not be changed after it. It
// must not be copied. Its methods may be called concurrently.
type Server struct {
	// Server has the handler, the timeouts and limits, ErrorLog and the settings of HTTP/2, as for net/http. It must not
	// be nil. ReadTimeout bounds the time in which a request's body must arrive, and WriteTimeout the time of a request;
	// both begin when the request's headers have arrived. IdleTimeout begins when the last stream has ended; 0 means
	// ReadTimeout. ReadHeaderTimeout, or ReadTimeout if it is 0, bounds the time for which a connection without streams
	// may hold a part of a frame. HTTP2.WriteByteTimeout bounds each write of up to 64 KiB.
	Server *http.Server
	// Linger is the time for which a connection without streams keeps its goroutine before it is parked. 0 means half a
	// second; with a negative value a connection is parked at once.
	Linger time.Duration
	// Backend, Unwrap and Logger are as in park.Config.
	Backend string
	Unwrap  func(net.Conn) net.Conn
	Logger  *slog.Logger

	mu      sync.Mutex
	lot     *park.Lot
	conns   map[*conn]struct{}
	closing bool
	empty   chan struct{} // closed when closing is set and conns is empty
}

// Stats returns the counters of the server's lot.
func (s *Server) Stats() park.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lot == nil {
		return park.Stats{}
	}
	return s.lot.Stats()
}

// ServeConn takes over a connection that speaks HTTP/2 from its first byte, and returns. A *tls.Conn must have completed its
// handshake, and have negotiated "h2". Requests get contexts that are derived from ctx and outlive the call; nil means
// context.Background. If ServeConn fails, it has closed the connection: with http.ErrServerClosed after Shutdown or Close,
// with socknotify.ErrInvalid for a nil Server or connection, and for a *tls.Conn whose version or cipher suite HTTP/2
// forbids, and with the errors of park.New.
func (s *Server) ServeConn(ctx context.Context, netConn net.Conn) error {
	_, err := s.begin(ctx, netConn, nil)
	return err
}

// NextProto is a value for the TLSNextProto map of an http.Server, with the key "h2". It returns when the connection has
// ended, because net/http closes the connection then; so net/http's goroutine stays, also while the connection is parked.
// The handler of srv is used, as net/http wraps it.
func (s *Server) NextProto(srv *http.Server, netConn *tls.Conn, handler http.Handler) {
	ctx := context.Background()
	if b, ok := handler.(interface{ BaseContext() context.Context }); ok {
		ctx = b.BaseContext()
	}
	c, err := s.begin(ctx, netConn, handler)
	if err != nil {
		s.logf("http2: %v: %v", netConn.RemoteAddr(), err)
		return
	}
	<-c.done
}

// begin starts to serve a connection.
func (s *Server) begin(ctx context.Context, netConn net.Conn, handler http.Handler) (*conn, error) {
	if s.Server == nil || netConn == nil {
		if netConn != nil {
			netConn.Close()
		}
		return nil, fmt.Errorf("http2: %w: Server or the connection is nil", socknotify.ErrInvalid)
	}
	if ctx == nil {
		ctx = context.Background()
	}
	if handler == nil {
		if handler = s.Server.Handler; handler == nil {
			handler = http.DefaultServeMux
		}
		ctx = context.WithValue(ctx, http.ServerContextKey, s.Server)
		ctx = context.WithValue(ctx, http.LocalAddrContextKey, netConn.LocalAddr())
	}
	if err := s.checkTLS(netConn); err != nil {
		netConn.Close()
		return nil, err
	}
	c := newConn(s, ctx, netConn, handler)
	if err := s.add(c); err != nil {
		netConn.Close()
		return nil, err
	}
	go c.serve(nil)
	return c, nil
}

// checkTLS refuses the cipher suites of TLS 1.2 that RFC 9113 (9.2.2) forbids, unless the server permits them.
func (s *Server) checkTLS(netConn net.Conn) error {
	t, ok := netConn.(*tls.Conn)
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
		lot, err := park.New(park.Config{Backend: s.Backend, Unwrap: s.Unwrap, Logger: s.Logger})
		if err != nil {
			return fmt.Errorf("http2: %w", err)
		}
		s.lot, s.conns = lot, make(map[*conn]struct{})
	}
	s.conns[c] = struct{}{}
	return nil
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.closing && len(s.conns) == 0 {
		close(s.empty)
	}
}

// stop makes the server refuse connections, and returns those that there are. empty is closed when they have ended.
func (s *Server) stop() (conns []*conn, lot *park.Lot, empty chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.closing, s.empty = true, make(chan struct{})
		if len(s.conns) == 0 {
			close(s.empty)
		}
	}
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns, s.lot, s.empty
}

// Shutdown ends the connections with GOAWAY frames: streams that are open are served to their end, and later ones are not
// begun. It returns when the connections have ended and their handlers have returned, or fails with the cause of ctx when
// that is done first. From then on ServeConn fails with http.ErrServerClosed. A nil ctx fails with socknotify.ErrInvalid.
func (s *Server) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("http2: shutdown: %w: nil context", socknotify.ErrInvalid)
	}
	conns, lot, empty := s.stop()
	for _, c := range conns {
		c.goAway()
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

// Close closes all connections at once. It does not wait for handlers, whose contexts are canceled. It returns nil.
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

// config returns the settings of HTTP/2, which are not nil.
func (s *Server) config() *http.HTTP2Config {
	if c := s.Server.HTTP2; c != nil {
		return c
	}
	return new(http.HTTP2Config)
}

// Limits and settings that are the same for all connections of a server.
const (
	maxFrameSize     = 16 << 10 // of frames in both directions
	initialWindow    = 65535    // RFC 9113 (6.9.2)
	defaultWindow    = 1 << 20
	defaultStreams   = 250
	initialTableSize = 4096 // RFC 9113 (6.5.2)
	prefaceTimeout   = 10 * time.Second
	drainTimeout     = time.Second
)

func (s *Server) maxStreams() int {
	if n := s.config().MaxConcurrentStreams; n > 0 {
		return n
	}
	return defaultStreams
}

func (s *Server) streamWindow() int32 {
	if n := s.config().MaxReceiveBufferPerStream; n > 0 && n < 4<<20 {
		return int32(n)
	}
	return defaultWindow
}

func (s *Server) connWindow() int32 {
	if n := s.config().MaxReceiveBufferPerConnection; n > initialWindow && n < 4<<20 {
		return int32(n)
	}
	return defaultWindow
}

func (s *Server) tableSize() uint32 {
	if n := s.config().MaxDecoderHeaderTableSize; n > 0 && n < 4<<20 {
		return uint32(n)
	}
	return initialTableSize
}

// maxHeaderList is the size of the decoded headers of a request, by RFC 9113's way to count. net/http adds the same for the
// names and values that do not count in HTTP/1.1.
func (s *Server) maxHeaderList() uint32 {
	n := s.Server.MaxHeaderBytes
	if n <= 0 {
		n = http.DefaultMaxHeaderBytes
	}
	return uint32(min(n, 1<<30) + 10*32)
}

// maxBlock bounds the frames of a header block. A longer one would be too large also when it is decoded.
func (s *Server) maxBlock() int {
	n := int(s.maxHeaderList())
	return n + n/4 + maxFrameSize
}

func (s *Server) linger() time.Duration {
	if s.Linger == 0 {
		return time.Second / 2
	}
	return max(s.Linger, 0)
}

func (s *Server) idleTimeout() time.Duration {
	if s.Server.IdleTimeout != 0 {
		return max(s.Server.IdleTimeout, 0)
	}
	return max(s.Server.ReadTimeout, 0)
}

func (s *Server) readHeaderTimeout() time.Duration {
	if s.Server.ReadHeaderTimeout != 0 {
		return max(s.Server.ReadHeaderTimeout, 0)
	}
	return max(s.Server.ReadTimeout, 0)
}

var (
	errClosed = fmt.Errorf("http2: the connection was closed: %w", net.ErrClosed)
	errGone   = errors.New("http2: the connection has ended after GOAWAY")
	errIdle   = errors.New("http2: the connection was idle for too long")
)
