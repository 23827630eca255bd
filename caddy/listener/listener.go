package listener

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/socknotify/socknotify/park"
)

// A listener is what Caddy's http.Server accepts from. When the first connection has arrived, Accept returns a greeting, with
// which that server makes itself known to the wrapper. Then a park.HTTPServer accepts in its place, and Accept waits until that
// ends.
type listener struct {
	net.Listener // what Caddy has given to the wrapper
	wrapper      *Wrapper
	log          *zap.Logger
	config       *tls.Config  // for TLS by the HTTPServer; nil if there is none, or crypto/tls keeps its connections
	closeBelow   func() error // closes the listener below, once: Caddy counts the calls

	// These fields are used by the goroutine that calls Accept. It sets secure before there is a source.
	phase  phase
	first  net.Conn // the first connection, until it was accepted or a source has it
	secure bool     // connections are *tls.Conns

	mu      sync.Mutex
	closed  bool
	serving *park.HTTPServer // nil while Caddy's server accepts
	source  *source          // of serving
	ended   chan struct{}    // closed when closed
}

type phase uint8

const (
	awaitFirst phase = iota // nothing was accepted
	greeted                 // the next call of Accept starts an HTTPServer
	asBefore                // Caddy's server accepts
)

// Accept returns a greeting. The next call returns when the listener has ended, unless connections cannot be parked: then they
// are accepted as if there were no wrapper.
func (l *listener) Accept() (net.Conn, error) {
	switch l.phase {
	case awaitFirst:
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.first = conn
		if l.phase = l.judge(conn); l.phase == greeted {
			return greet(l.Addr(), l.secure), nil
		}
	case greeted:
		l.phase = asBefore
		if err := l.park(); err != nil {
			return nil, err
		}
	}
	return l.accept()
}

// accept returns the first connection, and then those of the listener below.
func (l *listener) accept() (conn net.Conn, err error) {
	if conn, l.first = l.first, nil; conn != nil {
		return conn, nil
	}
	return l.Listener.Accept()
}

// judge decides by the first connection what is done with all of them.
func (l *listener) judge(conn net.Conn) phase {
	_, l.secure = conn.(*tls.Conn)
	if _, hidden := conn.(connectionStater); hidden && !l.secure {
		l.log.Warn("connections are not parked: another listener wrapper hides the TLS connection", zap.String("type", fmt.Sprintf("%T", conn)))
		return asBefore
	}
	return greeted
}

type connectionStater interface{ ConnectionState() tls.ConnectionState }

// A greeting is a connection whose peer has sent nothing and has closed it.
type greeting struct{ addr net.Addr }

// greet returns a greeting. That for TLS has a ConnectionState method, or Caddy would warn of a listener wrapper.
func greet(addr net.Addr, secure bool) net.Conn {
	if secure {
		return secureGreeting{greeting{addr}}
	}
	return greeting{addr}
}

func (greeting) Read([]byte) (int, error)         { return 0, io.EOF }
func (greeting) Write([]byte) (int, error)        { return 0, net.ErrClosed }
func (greeting) Close() error                     { return nil }
func (g greeting) LocalAddr() net.Addr            { return g.addr }
func (g greeting) RemoteAddr() net.Addr           { return g.addr }
func (greeting) SetDeadline(time.Time) error      { return nil }
func (greeting) SetReadDeadline(time.Time) error  { return nil }
func (greeting) SetWriteDeadline(time.Time) error { return nil }

type secureGreeting struct{ greeting }

func (secureGreeting) ConnectionState() (s tls.ConnectionState) { return s }

// park has an HTTPServer serve the connections. It returns when the listener was closed or has failed, with the error for
// Accept, or returns nil if the HTTPServer has failed and Caddy's server is to accept.
func (l *listener) park() error {
	of := l.wrapper.http.Load()
	if of == nil {
		l.log.Warn("connections are not parked: the server has not called the hook ConnContext")
		return nil
	}
	server, in := newServer(of, l), &source{l: l, first: l.first, backlog: backlogOf(l.Listener)}
	l.first = nil
	if !l.start(server, in) {
		in.first.Close()
		return l.errClosed()
	}
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
		l.first = in.first
		return l.resign(server, err)
	}
}

// start notes the HTTPServer for Close, unless the listener is closed already. It reports whether it was open.
func (l *listener) start(server *park.HTTPServer, in *source) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.serving, l.source = server, in
	l.wrapper.observe(l)
	return true
}

// serve runs the HTTPServer. It recovers from a panic of what that calls when it accepts: hooks of modules, and this module.
func (l *listener) serve(server *park.HTTPServer, in *source) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		if in.first != nil && l.isClosed() {
			in.first.Close() // and nothing calls Accept any more
		}
	}()
	if l.secure && l.config != nil {
		return server.ServeTLS(in, "", "")
	}
	return server.Serve(in)
}

// resign leaves the connections to Caddy's server, because the HTTPServer has failed. It fails if the listener is closed; serve
// has closed the first connection then.
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

// Close makes Accept fail, closes the listener below, and begins to shut the HTTPServer down, which serves the connections that
// were accepted.
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
	err := l.source.end()
	end(l.serving, func() { l.closeBelow() })
	return err
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
