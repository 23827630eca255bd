package park

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/metrics"
)

// An HTTPServer is an http.Server whose idle keep-alive connections need no goroutine and no buffer. HTTP itself is
// served by net/http. ConnState, ConnContext, IdleTimeout, Shutdown and the bytes on the wire are the same as with an
// http.Server, with these exceptions:
//
//   - ConnState and ConnContext receive the connection itself. Any other connection that a program receives, such as
//     a hijacked one, is a wrapper whose NetConn method returns the *net.TCPConn or TLSConn.
//   - A TLS connection is a TLSConn, and no *tls.Conn unless CryptoTLS is set.
//   - ConnState may be called with StateClosed by a goroutine of the HTTPServer.
//   - An idle timeout is 0.2 seconds late, and some per cent on a busy machine. ReadHeaderTimeout, and the time for a TLS handshake, begin with the
//     first byte; for that there is the same time.
//   - If a large head of a request comes after a pause, up to 4,096 bytes more of it count towards
//     MaxHeaderBytes. An http.Server allows that much beyond the limit.
//   - Shutdown answers the first request of connections that were accepted before it, as it describes.
//   - Before Serve returns, the HTTPServer closes the parked connections.
//
// A connection is parked until its first byte, and between two requests, when net/http has consumed every byte that was
// read from it: immediately after a request, or when it has been idle for Linger if it is busy.
// Connections that [Lot.Park] refuses with ErrUnparkable are never parked. They are counted in Stats.Unparkable of the lot,
// and one message for each of their types is logged to Server.ErrorLog. HTTP/2 connections are parked if the field HTTP2 is
// set. If it is nil, net/http serves them; neither they nor, if Server.Protocols allows unencrypted HTTP/2, any unencrypted
// connections are parked then.
type HTTPServer struct {
	// Server is the server to run. If it is nil, Serve, ListenAndServe and their TLS variants fail with
	// socknotify.ErrInvalid. The first of these calls replaces Handler, ConnState, ConnContext and BaseContext of
	// the Server by functions that call the originals, and if HTTP2 is set, Protocols by a copy; the program must not
	// change them after that. The program may also call Shutdown and Close of the Server itself. Both of them then end the
	// connections of HTTP2 as Shutdown of the HTTPServer does, and do not wait for them.
	//
	// The program must call SetKeepAlivesEnabled of the HTTPServer, and not that of the Server: that
	// one calls no hook, and package net/http does not export the setting. It does not reach the
	// connections of HTTP2, and parked ones of HTTP/1.1 end only after their next request.
	Server *http.Server
	// HTTP2, if not nil, serves the HTTP/2 connections instead of net/http, and parks them while nothing arrives: those
	// that have negotiated "h2" by TLS, and with Server.Protocols.UnencryptedHTTP2 those that begin with the preface of
	// HTTP/2. A *http2.Server of package park/http2 is such a server, and the zero value will do. It belongs to one
	// HTTPServer, which must be ended by Shutdown or Close of itself or of the Server.
	HTTP2 HTTP2Server
	// CryptoTLS keeps a *tls.Conn for each TLS connection. Otherwise they are as those of TLSServer,
	// except for protocols in Server.TLSNextProto and for HTTP/2 without the field HTTP2.
	CryptoTLS bool
	// Linger is the time that a busy connection keeps its goroutine between two requests before it is parked. 0 means half
	// a second; with a negative value there is none. A connection is busy if its latest request came within Linger of the
	// one before. Others are parked immediately after their request, and new connections too.
	Linger time.Duration
	// MaxSuspended and MaxSuspendedBytes bound the number of requests that wait (see Suspend), and
	// the bytes of their heads and bodies. Beyond that Suspend fails with ErrMaxSuspended. 0 means no
	// limit. EndSuspended makes Shutdown close the connections of waiting requests, as Close does;
	// otherwise Shutdown lets each of them answer.
	MaxSuspended      int
	MaxSuspendedBytes int64
	EndSuspended      bool
	// Backend, Unwrap and Name are as in Config. Messages are logged to Server.ErrorLog.
	Backend string
	Unwrap  func(net.Conn) net.Conn
	Name    string
	// TimeCalls makes the server measure how long each request takes, until its handler returns, for Stats.CallTime.
	TimeCalls bool
	// OnLot, if not nil, is called by each Serve with its lot, before Serve accepts connections, and by the first one also
	// with the lot of HTTP2. It lets a program observe the lot. The server owns the lot.
	OnLot func(*Lot)

	tls         tlsServer
	once        sync.Once
	connState   func(net.Conn, http.ConnState)
	connContext func(context.Context, net.Conn) context.Context
	baseContext func(net.Listener) context.Context
	alive       atomic.Bool // keep-alives are enabled
	unwrapped   sync.Map    // connections that are served without a session, to their *httpConn
	prior       bool        // unencrypted connections may begin with HTTP/2's preface, for HTTP2

	accepted atomic.Uint64
	left     atomic.Uint64 // connections that were closed or hijacked
	requests atomic.Uint64
	rejected atomic.Uint64
	panics   atomic.Uint64
	stock2   atomic.Uint64 // for Stats.UnparkedHTTP2
	times    metrics.Recorder
	waits    waits

	mu        sync.Mutex
	closing   bool // Shutdown or Close was called
	listeners map[*listener]struct{}
	ended     Stats // the counts of lots whose Serve has returned
	lot2      *Lot  // of HTTP2; nil before the first Serve
}

// An HTTP2Server serves the HTTP/2 connections of an HTTPServer. Package park/http2 has one; it is a module of its own, and
// the interface exists because package park does not import it. The methods may be called concurrently.
type HTTP2Server interface {
	// Attach is called once, by the first Serve of the HTTPServer and before the other methods except
	// SetKeepAlivesEnabled, Shutdown and Close.
	// server has the handler, the hooks, the timeouts and the settings, linger is HTTPServer.Linger, and lot is for the
	// connections. The HTTP2Server closes lot when it has ended, unless Attach fails. Serve fails with its error.
	Attach(server *http.Server, lot *Lot, linger time.Duration) error
	// ServeReceived takes over a new connection, and returns. received holds the bytes that were read from it; the callee
	// may keep them. ServeReceived calls ConnContext of the http.Server, with ctx, and ConnState with StateNew, and later
	// the states that follow. If it fails it may leave the connection open, and ConnState is not called after that.
	ServeReceived(ctx context.Context, conn net.Conn, received []byte) error
	// SetKeepAlivesEnabled with false ends connections without streams, and others when their streams have ended.
	SetKeepAlivesEnabled(v bool)
	// Shutdown refuses new connections and new streams, and waits until all connections have ended or ctx is done. The
	// connections also end if ctx is done before.
	Shutdown(ctx context.Context) error
	// Close closes the connections, and refuses new ones. It does not wait.
	Close() error
}

// Stats returns the current counters.
func (s *HTTPServer) Stats() Stats {
	s.mu.Lock()
	st := s.ended
	st.CryptoTLS = s.tls.kept.Load()
	left := s.left.Load() // before accepted, which is not less then
	st.Accepted = s.accepted.Load()
	st.Conns = int(st.Accepted - left)
	st.Calls, st.Rejected = s.requests.Load(), s.rejected.Load()
	st.Panics += s.panics.Load()
	st.UnparkedHTTP2 = s.stock2.Load()
	for l := range s.listeners {
		st.add(l.lot.Stats())
	}
	if s.lot2 != nil {
		st.add(s.lot2.Stats())
	}
	s.mu.Unlock()
	s.times.AddTo(&st.CallTime)
	s.waits.addTo(&st)
	return st
}

// Ready reports whether the server accepts connections: at least one Serve runs, and neither Shutdown nor Close was
// called. It is for readiness checks, such as debug.Ready.
func (s *HTTPServer) Ready() bool {
	for _, l := range s.served() {
		l.mu.Lock()
		open := !l.draining && !l.closed
		l.mu.Unlock()
		if open {
			return true
		}
	}
	return false
}

// Lots returns the lots of the calls of Serve that have not returned, and that of HTTP2 if there is one, for observers such
// as package debug. The server owns them.
func (s *HTTPServer) Lots() (lots []*Lot) {
	for _, l := range s.served() {
		lots = append(lots, l.lot)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lot2 != nil {
		lots = append(lots, s.lot2)
	}
	return lots
}

var errNoServer = fmt.Errorf("park: serve: %w: HTTPServer.Server is nil", socknotify.ErrInvalid)

// Serve is like http.Server.Serve. It also supports listeners made by tls.NewListener.
func (s *HTTPServer) Serve(l net.Listener) error { return s.serve(l, nil) }

// ListenAndServe is like http.Server.ListenAndServe.
func (s *HTTPServer) ListenAndServe() error { return s.listen(":http", s.Serve) }

// ServeTLS is like http.Server.ServeTLS.
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

// ListenAndServeTLS is like http.Server.ListenAndServeTLS.
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
	return listen("tcp", cmp.Or(s.Server.Addr, address), serve)
}

// Shutdown is like http.Server.Shutdown, and loses no request of a new connection: it closes the listeners, and a
// connection that was accepted within the last five seconds has what is left of them for its TLS handshake and its first
// request, which is answered with "Connection: close". An http.Server drops requests that arrive after its Shutdown has
// begun. The others that wait are closed at once.
//
// Shutdown also closes the parked connections and waits until ConnState has returned for each of them. The clients of
// HTTP/2 receive GOAWAY frames, and the streams that are open are served to their end.
func (s *HTTPServer) Shutdown(ctx context.Context) error {
	if s.Server == nil {
		return nil
	}
	s.close()
	served := s.served() // before Serve removes them
	for _, l := range served {
		l.stopAccepting()
	}
	s.endKeepAlives(served)
	waits := s.endWaits(served)
	for _, l := range served {
		drain(ctx, l.lot.engine.Clock(), l.drained.Over(), l.closeSilent)
	}
	select {
	case <-waits:
	case <-ctx.Done():
	}
	s.endHTTP2()
	err := s.Server.Shutdown(ctx)
	for _, l := range served {
		err = cmp.Or(err, l.wait(ctx))
	}
	if s.HTTP2 != nil {
		err = cmp.Or(err, s.HTTP2.Shutdown(ctx))
	}
	return err
}

// endKeepAlives ends parked connections, and others after the answer of their next request, for Shutdown. The setting of
// net/http would close idle connections at once, and serve a request that is just arriving on one of them.
func (s *HTTPServer) endKeepAlives(served []*listener) {
	s.alive.Store(false)
	for _, l := range served {
		l.evictIdle()
	}
	if s.HTTP2 != nil {
		s.HTTP2.SetKeepAlivesEnabled(false)
	}
}

// close makes Serve fail.
func (s *HTTPServer) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
}

// endHTTP2 begins the end of HTTP2, and does not wait for it.
func (s *HTTPServer) endHTTP2() {
	if s.HTTP2 != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.HTTP2.Shutdown(ctx)
	}
}

// Close is like http.Server.Close. It also closes the parked connections.
func (s *HTTPServer) Close() error {
	if s.Server == nil {
		return nil
	}
	s.close()
	s.waits.close() // the requests of HTTP/2 that wait must know that it was not their client
	err := s.Server.Close()
	if s.HTTP2 != nil {
		err = cmp.Or(err, s.HTTP2.Close())
	}
	return err
}

// SetKeepAlivesEnabled is like http.Server.SetKeepAlivesEnabled. If v is false it also closes the parked connections.
func (s *HTTPServer) SetKeepAlivesEnabled(v bool) {
	if s.Server == nil {
		return // there are no connections
	}
	s.install()
	s.alive.Store(v)
	s.Server.SetKeepAlivesEnabled(v)
	if s.HTTP2 != nil {
		s.HTTP2.SetKeepAlivesEnabled(v)
	}
	if !v {
		for _, l := range s.served() {
			l.evictIdle()
		}
	}
}

// logger returns a logger that writes to Server.ErrorLog, or nil. A lot calls it for each message,
// because the program may change the field, as with net/http.
func (s *HTTPServer) logger() *slog.Logger {
	l := s.Server.ErrorLog
	if l == nil {
		return nil
	}
	return slog.New(slog.NewTextHandler(logWriter{l}, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{} // a log.Logger has its own
			}
			return a
		}}))
}

type logWriter struct{ log *log.Logger }

func (w logWriter) Write(p []byte) (int, error) { return len(p), w.log.Output(0, string(p)) }

func (s *HTTPServer) served() []*listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.listeners))
}

// install replaces the hooks of the Server by ours, which call the program's.
func (s *HTTPServer) install() {
	s.once.Do(func() {
		srv := s.Server
		s.alive.Store(true)
		s.tls.set(s.CryptoTLS, func(state tls.ConnectionState) bool {
			switch state.NegotiatedProtocol {
			case "", "http/1.1", "http/1.0":
				return false
			case "h2":
				return s.HTTP2 == nil
			}
			return true // for net/http, whose TLSNextProto takes a *tls.Conn
		})
		s.connState, s.connContext, s.baseContext = srv.ConnState, srv.ConnContext, srv.BaseContext
		srv.ConnState = s.stateChanged
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
		srv.Handler = methodRecorder{srv.Handler, s}
		s.waits.open()
		srv.RegisterOnShutdown(func() { s.waits.close() })
		if p := srv.Protocols; s.HTTP2 != nil && p != nil && p.UnencryptedHTTP2() {
			s.prior = true
			others := *p // net/http does not look for the preface as well
			others.SetUnencryptedHTTP2(false)
			srv.Protocols = &others
		}
	})
}

// attach prepares HTTP2.
func (s *HTTPServer) attach() error {
	if s.HTTP2 == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lot2 != nil {
		return nil
	}
	lot, err := s.newLot()
	if err != nil {
		return err
	}
	if err := s.HTTP2.Attach(s.Server, lot, s.Linger); err != nil {
		lot.Close()
		return err
	}
	s.lot2 = lot
	if s.OnLot != nil {
		s.OnLot(lot)
	}
	return nil
}

func (s *HTTPServer) newLot() (*Lot, error) {
	return openLot(Config{Backend: s.Backend, Unwrap: s.Unwrap, Name: s.Name}, s.logger)
}

// stateChanged is the ConnState hook of the Server.
func (s *HTTPServer) stateChanged(conn net.Conn, state http.ConnState) {
	if in, ok := conn.(inSession); ok {
		in.self().stateChanged(state)
		return
	}
	if v, ok := s.unwrapped.Load(conn); ok {
		hc := v.(*httpConn)
		switch state {
		case http.StateNew:
			return // reported when the connection was accepted
		case http.StateIdle:
			hc.idled = true
		case http.StateActive:
			if hc.idled { // net/http reports StateActive and StateIdle when HTTP/2 begins
				s.begunUnwrapped(hc)
			}
		case http.StateHijacked, http.StateClosed:
			s.begunUnwrapped(hc)
			s.unwrapped.Delete(conn)
		}
		conn = hc.conn
	}
	s.announce(conn, state)
}

// begunUnwrapped is hc.begun for the ConnState hook. HTTP2 may call that while serveHTTP2 returns.
func (s *HTTPServer) begunUnwrapped(hc *httpConn) {
	if s.HTTP2 != nil {
		hc.in.forget(hc)
	} else {
		hc.begun()
	}
}

// announce counts a connection by its first and its last state, and calls the program's hook.
func (s *HTTPServer) announce(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.accepted.Add(1)
	case http.StateHijacked, http.StateClosed:
		s.left.Add(1)
	}
	if s.connState != nil {
		s.connState(conn, state)
	}
}

// context is the ConnContext hook of the Server. The program's hook was called when the connection was accepted; its
// result is used for every session of the connection.
func (s *HTTPServer) context(ctx context.Context, conn net.Conn) context.Context {
	var hc *httpConn
	in, ok := conn.(inSession)
	if ok {
		hc = in.self().hc
	} else if v, ok := s.unwrapped.Load(conn); ok {
		hc = v.(*httpConn)
	} else if s.connContext != nil {
		return s.connContext(ctx, conn)
	}
	if hc != nil && hc.ctx != nil {
		ctx = hc.ctx
	}
	if ok {
		ctx = context.WithValue(ctx, sessionKey{}, in.self())
	}
	return ctx
}

type sessionKey struct{}

// A methodRecorder is the outermost handler. It counts requests, parks the connections of those that
// wait (see Suspend), and records whether the latest request of a session was a POST: after the body
// of a POST, net/http ignores line breaks that old clients send.
type methodRecorder struct {
	http.Handler
	server *HTTPServer
}

func (h methodRecorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.server.TimeCalls {
		began := time.Now()
		defer func() { h.server.times.Record(time.Since(began)) }()
	}
	s, ok := r.Context().Value(sessionKey{}).(*session)
	if !ok {
		h.server.requests.Add(1)
		h.serve(w, r)
		return
	}
	s.post, s.called = r.Method == http.MethodPost, true
	if !h.server.alive.Load() {
		w.Header().Set("Connection", "close")
	}
	s.served = served{w, r.Method, r.ProtoMajor, r.ProtoMinor, r.Header, r.Body}
	s.hc.begun()
	returned := false
	defer func() { s.handled(returned) }()
	if q := s.answers; q != nil {
		s.answers = nil
		q.answer(w, r)
	} else {
		h.server.requests.Add(1)
		h.serve(w, r)
	}
	returned = true
}

func (h methodRecorder) serve(w http.ResponseWriter, r *http.Request) {
	if h.Handler == nil {
		http.DefaultServeMux.ServeHTTP(w, r)
		return
	}
	h.Handler.ServeHTTP(w, r)
}

func (s *HTTPServer) serve(in net.Listener, config *tls.Config) error {
	if s.Server == nil {
		in.Close() // as net/http does on every error
		return errNoServer
	}
	s.install()
	lot, err := s.newLot()
	if err != nil {
		in.Close()
		return err
	}
	if err := s.attach(); err != nil {
		lot.Close()
		in.Close()
		return err
	}
	lot.engine.SetAlone(batch)
	l := newListener(s, in, lot, config)
	s.mu.Lock()
	if s.listeners == nil {
		s.listeners = make(map[*listener]struct{})
	}
	closing := s.closing
	if !closing {
		s.listeners[l] = struct{}{}
	}
	s.mu.Unlock()
	if closing {
		lot.Close()
		in.Close()
		return http.ErrServerClosed
	}
	defer func() {
		l.Close()
		l.clear()
		s.mu.Lock()
		delete(s.listeners, l)
		ended := lot.Stats()
		ended.Parked, ended.Waiting, ended.Running, ended.Workers = 0, 0, 0, 0
		s.ended.add(ended)
		s.mu.Unlock()
	}()
	if s.OnLot != nil {
		s.OnLot(lot)
	}
	err = l.serve()
	if errors.Is(err, http.ErrServerClosed) {
		s.endHTTP2() // also if the program has called Shutdown or Close of the Server
	}
	return err
}
