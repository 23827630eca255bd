package listener

import (
	"crypto/tls"
	"fmt"
	"net"
	"runtime/debug"
	"sync"

	"go.uber.org/zap"

	"github.com/socknotify/socknotify/park"
)

// A listener is what Caddy's http.Server accepts from. That server gets the first connection, and with it makes itself known to
// the wrapper. Then a park.HTTPServer accepts in its place, and Accept waits until that ends.
type listener struct {
	net.Listener // what Caddy has given to the wrapper
	wrapper      *Wrapper
	log          *zap.Logger
	config       *tls.Config // for TLS by the HTTPServer; nil if there is none, or crypto/tls keeps its connections

	// The other fields are used by the goroutine that calls Accept.
	phase  phase
	secure bool // connections are *tls.Conns

	mu      sync.Mutex
	closed  bool
	serving *park.HTTPServer // nil while Caddy's server accepts
	ended   chan struct{}    // closed when closed

	closeBelow func() error // closes the listener below, once: Caddy counts the calls
}

type phase uint8

const (
	awaitFirst phase = iota // Caddy's server has accepted nothing
	parks                   // the next call of Accept starts an HTTPServer
	asBefore                // Caddy's server accepts all connections
)

// Accept returns the first connection. The next call returns when the listener has ended, unless connections cannot be
// parked: then they are accepted as if there were no wrapper.
func (l *listener) Accept() (net.Conn, error) {
	if l.phase == parks {
		l.phase = asBefore
		if err := l.park(); err != nil {
			return nil, err
		}
	}
	conn, err := l.Listener.Accept()
	if err == nil && l.phase == awaitFirst {
		l.phase = l.judge(conn)
	}
	return conn, err
}

// judge decides by the first connection what is done with the others.
func (l *listener) judge(conn net.Conn) phase {
	_, l.secure = conn.(*tls.Conn)
	if _, hidden := conn.(interface{ ConnectionState() tls.ConnectionState }); hidden && !l.secure {
		l.log.Warn("connections are not parked: another listener wrapper hides the TLS connection", zap.String("type", fmt.Sprintf("%T", conn)))
		return asBefore
	}
	return parks
}

// park has an HTTPServer serve the connections. It returns when the listener was closed or has failed, with the error for
// Accept, or returns nil if the HTTPServer has failed and Caddy's server is to accept.
func (l *listener) park() error {
	of := l.wrapper.http.Load()
	if of == nil {
		l.log.Warn("connections are not parked: the server has not called the hook ConnContext")
		return nil
	}
	server := newServer(of, l)
	if !l.start(server) {
		return l.errClosed()
	}
	in := &source{l: l, backlog: backlogOf(l.Listener)}
	done := make(chan error, 1)
	go func() { done <- l.serve(server, in) }()
	l.log.Info("parks idle connections", zap.Bool("tls", l.secure), zap.Bool("lean_tls", !server.CryptoTLS && l.secure),
		zap.Bool("http2", server.HTTP2 != nil))
	select {
	case <-l.ended:
		return l.errClosed()
	case err := <-done:
		if in.failed != nil {
			return in.failed
		}
		return l.resign(server, err)
	}
}

// start notes the HTTPServer for Close, unless the listener is closed already. It reports whether it was open.
func (l *listener) start(server *park.HTTPServer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.serving = server
	l.wrapper.observe(l)
	return true
}

// serve runs the HTTPServer. It recovers from a panic of what that calls when it accepts: hooks of modules, and this module.
func (l *listener) serve(server *park.HTTPServer, in net.Listener) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if l.secure && l.config != nil {
		return server.ServeTLS(in, "", "")
	}
	return server.Serve(in)
}

// resign leaves the connections to Caddy's server, because the HTTPServer has failed. It fails if the listener is closed.
func (l *listener) resign(server *park.HTTPServer, why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.errClosed()
	}
	l.log.Error("connections are not parked any more", zap.Error(why))
	l.serving = nil
	end(server, func() {})
	return nil
}

// Close makes Accept fail, and begins to shut the HTTPServer down. That serves the connections that were accepted, and closes
// the listener below first.
func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.closed = true
	close(l.ended)
	if l.serving == nil {
		return l.closeBelow()
	}
	end(l.serving, func() { l.closeBelow() }) // the HTTPServer has closed it unless its Serve was not called
	return nil
}

func (l *listener) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

func (l *listener) errClosed() error {
	return &net.OpError{Op: "accept", Net: l.Addr().Network(), Addr: l.Addr(), Err: net.ErrClosed}
}

// stats returns the counters of the HTTPServer, or zeros while there is none.
func (l *listener) stats() (s park.Stats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.serving != nil {
		s = l.serving.Stats()
	}
	return s
}
