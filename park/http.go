package park

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
)

// An HTTPServer is net/http's Server whose keep-alive connections hold no goroutine and no buffer while they
// are idle. Everything else is net/http's, and all that a program can see of it, ConnState and ConnContext,
// IdleTimeout, Shutdown and the bytes on the wire, is the same but for this:
//
//   - A hijacked connection, and one in the context of neither hook, is a wrapper, whose NetConn method
//     returns the *net.TCPConn or *tls.Conn.
//   - ConnState's StateClosed may be called by a goroutine of the server's own.
//   - An idle time-out is late by up to 0.2 seconds.
//   - Shutdown closes connections whose TLS handshake is under way, and so does Serve when it returns, as well
//     as parked ones.
//
// A connection is parked when it has been idle for Linger and net/http has consumed every byte it was given.
// HTTP/2 connections are net/http's own, and are not parked; nor are unencrypted ones where the server's
// Protocols allow HTTP/2 on them, nor connections without a descriptor.
type HTTPServer struct {
	// Server is served; without one Serve and its kin are socknotify.ErrInvalid. Its Handler, ConnState,
	// ConnContext and BaseContext are replaced when it is first served, by functions that call them, and must not
	// be changed from then on. Its own Shutdown and Close may be called as well as ours.
	Server *http.Server
	// Linger is how long an idle connection keeps its goroutine, so that busy ones need not be parked between
	// requests. 0 is half a second; a negative one parks at once.
	Linger time.Duration
	// Backend is that of Config.
	Backend string
	// OnLot, if not nil, is called by each Serve with the lot that it parks in, before it accepts: for those
	// who observe it. The lot is the server's.
	OnLot func(*Lot)

	once        sync.Once
	connState   func(net.Conn, http.ConnState)
	connContext func(context.Context, net.Conn) context.Context
	baseContext func(net.Listener) context.Context
	alive       atomic.Bool // keep-alives are allowed
	native      sync.Map    // *tls.Conn that net/http is to serve by itself, already announced

	mu        sync.Mutex
	listeners map[*listener]struct{}
}

var errNoServer = fmt.Errorf("park: serve: %w: no Server", socknotify.ErrInvalid)

const defaultLinger = 500 * time.Millisecond

// Serve is http.Server's. A listener of tls.NewListener is served as such.
func (s *HTTPServer) Serve(l net.Listener) error { return s.serve(l, nil) }

// ListenAndServe is http.Server's.
func (s *HTTPServer) ListenAndServe() error { return s.listen(":http", s.Serve) }

// ServeTLS is http.Server's.
func (s *HTTPServer) ServeTLS(l net.Listener, certFile, keyFile string) error {
	if s.Server == nil {
		return errNoServer
	}
	config, err := s.tlsConfig(certFile, keyFile)
	if err != nil {
		return err
	}
	return s.serve(l, config)
}

// ListenAndServeTLS is http.Server's.
func (s *HTTPServer) ListenAndServeTLS(certFile, keyFile string) error {
	return s.listen(":https", func(l net.Listener) error {
		defer l.Close()
		return s.ServeTLS(l, certFile, keyFile)
	})
}

func (s *HTTPServer) listen(address string, serve func(net.Listener) error) error {
	if s.Server == nil {
		return errNoServer
	}
	if s.Server.Addr != "" {
		address = s.Server.Addr
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return serve(l)
}

// Shutdown is http.Server's. Parked connections are closed first, and it waits for their last ConnState.
func (s *HTTPServer) Shutdown(ctx context.Context) error {
	if s.Server == nil {
		return nil
	}
	served := s.served() // before they end
	err := s.Server.Shutdown(ctx)
	for _, l := range served {
		if e := l.wait(ctx); err == nil {
			err = e
		}
	}
	return err
}

// Close is http.Server's. Parked connections are closed as well.
func (s *HTTPServer) Close() error {
	if s.Server == nil {
		return nil
	}
	return s.Server.Close()
}

// SetKeepAlivesEnabled is http.Server's. Without keep-alives the parked connections are closed.
func (s *HTTPServer) SetKeepAlivesEnabled(v bool) {
	if s.Server == nil {
		return // there are no connections
	}
	s.install()
	s.alive.Store(v)
	s.Server.SetKeepAlivesEnabled(v)
	if !v {
		for _, l := range s.served() {
			l.lot.evict()
		}
	}
}

// Parked is the number of connections that are parked.
func (s *HTTPServer) Parked() int {
	n := 0
	for _, l := range s.served() {
		n += l.lot.Stats().Parked
	}
	return n
}

func (s *HTTPServer) served() []*listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*listener
	for l := range s.listeners {
		all = append(all, l)
	}
	return all
}

func (s *HTTPServer) linger() time.Duration {
	if s.Linger == 0 {
		return defaultLinger
	}
	return max(s.Linger, 0)
}

// install puts our hooks before the program's.
func (s *HTTPServer) install() {
	s.once.Do(func() {
		srv := s.Server
		s.alive.Store(true)
		s.connState, s.connContext, s.baseContext = srv.ConnState, srv.ConnContext, srv.BaseContext
		srv.ConnState = s.changed
		srv.ConnContext = s.context
		srv.BaseContext = func(in net.Listener) context.Context {
			if l, ok := in.(*listener); ok {
				return l.base()
			}
			if s.baseContext != nil {
				return s.baseContext(in)
			}
			return context.Background()
		}
		srv.Handler = handler{srv.Handler}
	})
}

// changed is the server's ConnState.
func (s *HTTPServer) changed(conn net.Conn, state http.ConnState) {
	if in, ok := conn.(inSession); ok {
		in.self().changed(state)
		return
	}
	if state == http.StateNew {
		if _, ok := s.native.LoadAndDelete(conn); ok {
			return
		}
	}
	s.announce(conn, state)
}

func (s *HTTPServer) announce(conn net.Conn, state http.ConnState) {
	if s.connState != nil {
		s.connState(conn, state)
	}
}

// context is the server's ConnContext. The program's was called when the connection was accepted.
func (s *HTTPServer) context(ctx context.Context, conn net.Conn) context.Context {
	var l *link
	in, ok := conn.(inSession)
	if ok {
		l = in.self().link
	} else if v, ok := s.native.Load(conn); ok {
		l = v.(*link)
	} else if s.connContext != nil {
		return s.connContext(ctx, conn)
	}
	if l != nil && l.ctx != nil {
		ctx = l.ctx
	}
	if ok {
		ctx = context.WithValue(ctx, sessionKey{}, in.self())
	}
	return ctx
}

type sessionKey struct{}

// A handler notes the method of a connection's latest request, after which net/http forgives what old
// clients send behind the body of a POST.
type handler struct{ http.Handler }

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s, ok := r.Context().Value(sessionKey{}).(*session); ok {
		s.post = r.Method == http.MethodPost
	}
	if h.Handler == nil {
		http.DefaultServeMux.ServeHTTP(w, r)
		return
	}
	h.Handler.ServeHTTP(w, r)
}

func (s *HTTPServer) serve(in net.Listener, config *serverTLS) error {
	if s.Server == nil {
		in.Close() // as net/http does, whatever it is that cannot be served
		return errNoServer
	}
	s.install()
	lot, err := New(Config{Backend: s.Backend})
	if err != nil {
		in.Close()
		return err
	}
	l := newListener(s, in, lot, config)
	s.mu.Lock()
	if s.listeners == nil {
		s.listeners = make(map[*listener]struct{})
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		l.Close()
		l.clear()
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	if s.OnLot != nil {
		s.OnLot(lot)
	}
	return l.serve()
}
