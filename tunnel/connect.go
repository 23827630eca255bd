package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/socknotify/socknotify/internal/serving/nethttp"
	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/group"
)

// A ConnectProxy answers the CONNECT method, with which a client asks a forward proxy for a
// connection to a host and a port, and joins both in a tunnel: over HTTP/1.1 the client's
// connection, and over HTTP/2, if package park/http2 serves it, the stream of the request. It is a
// handler, and nothing is allowed unless its fields allow it.
//
// A client learns no more than the status: 400 for a malformed request, 403 for a port or an address
// that is not allowed, 502 or 504 for a host that cannot be reached, and 503 beyond MaxConns of the
// Tunnels and after their Shutdown. The reason goes to the Logger of the Tunnels.
type ConnectProxy struct {
	// Tunnels has the tunnels. It must not be nil.
	Tunnels *Tunnels
	// Allow reports whether the client of a request may have a connection to an address. It is
	// called with what the host of the request was resolved to, before each attempt to connect,
	// possibly concurrently for one request. If it is nil, every request is refused.
	Allow func(r *http.Request, addr netip.AddrPort) bool
	// Ports are the ports that may be connected to. nil means 443 alone.
	Ports []int
	// Inside has the hosts, as they stand in requests, that may have addresses inside of a network:
	// loopback, link-local, private and other addresses that are not for the Internet, and those
	// of the metadata services of clouds. Allow is called for them too. Other hosts with such an
	// address are refused.
	Inside []string
	// Dialer connects. Its Timeout is 10 seconds if it is 0. Its ControlContext or Control is
	// called after Allow.
	Dialer net.Dialer
	// Other, if not nil, serves requests with other methods, which are refused otherwise.
	Other http.Handler
}

// A refusal is why a CONNECT request gets another answer than a connection.
type refusal struct {
	code int   // 0 if the client has got an answer
	err  error // for the log
}

// refused returns a refusal with a reason in words.
func refused(code int, format string, args ...any) *refusal {
	return &refusal{code, fmt.Errorf("tunnel: connect: "+format, args...)}
}

// errForbidden is the error of an address that is not allowed.
var errForbidden = errors.New("tunnel: connect: the address is not allowed")

func (p *ConnectProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect:
		if no := p.connect(w, r); no != nil {
			p.log(r, no)
			if no.code != 0 {
				refuse(w, no.code)
			}
		}
	case p.Other != nil:
		p.Other.ServeHTTP(w, r)
	default:
		w.Header().Set("Allow", http.MethodConnect)
		refuse(w, http.StatusMethodNotAllowed)
	}
}

// connect serves a CONNECT request, or returns why it does not.
func (p *ConnectProxy) connect(w http.ResponseWriter, r *http.Request) *refusal {
	u := r.URL
	switch {
	case r.ProtoMajor != 1 && !canJoin(w, r):
		return refused(http.StatusNotImplemented, "not by this server, or a request with a protocol")
	case r.ProtoMajor == 1 && r.ContentLength != 0, r.ProtoMajor != 1 && r.Header["Content-Length"] != nil:
		return refused(http.StatusBadRequest, "the request has a body")
	case u.User != nil || u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return refused(http.StatusBadRequest, "the target is more than a host and a port")
	}
	backend, no := p.dial(r)
	if no != nil {
		return no
	}
	answer := p.answer
	if r.ProtoMajor != 1 {
		answer = p.answerStream
	}
	if no = answer(w, backend); no != nil {
		backend.Close()
	}
	return no
}

// log logs why a request was refused.
func (p *ConnectProxy) log(r *http.Request, no *refusal) {
	g := p.Tunnels
	g.group.Mu.Lock()
	g.group.LogTo("tunnel: ", g.Name, g.Logger)
	g.group.Mu.Unlock()
	level, message := slog.LevelWarn, "CONNECT refused"
	switch {
	case no.err == park.ErrMaxConns:
		g.group.Log.Log(serving.LevelLimit, "connection refused", "limit", "MaxConns", "remote", r.RemoteAddr)
		return
	case no.code == http.StatusBadRequest, no.code == http.StatusNotImplemented:
		level = serving.LevelBadPeer
	case r.Context().Err() != nil: // the client has gone
		level, message = serving.LevelBadPeer, "CONNECT failed"
	case no.code != http.StatusForbidden:
		message = "CONNECT failed"
	}
	target := r.URL.Host
	g.group.Log.Log(level, message, "err", no.err, "remote", r.RemoteAddr, "address", target[:min(len(target), 2*maxHost)])
}

// canJoin reports whether a request that is not of HTTP/1 is one for a connection, and can be
// joined with it.
func canJoin(w http.ResponseWriter, r *http.Request) bool {
	_, err := nethttp.MuxedWriter(w)
	return err == nil && r.Header[":protocol"] == nil
}

func refuse(w http.ResponseWriter, code int) { http.Error(w, http.StatusText(code), code) }

// answer makes the tunnel. It is reserved first, so that the client gets the status 200 only with one.
func (p *ConnectProxy) answer(w http.ResponseWriter, backend net.Conn) *refusal {
	g := p.Tunnels
	if err := g.group.Reserve(g.MaxConns, g.prepare); err != nil {
		return unjoined(err)
	}
	reserved := true
	defer func() {
		if reserved { // also if a method of w panics
			g.group.Release()
		}
	}()
	client, early, err := nethttp.TakeOver(w)
	if err != nil {
		return unjoined(err)
	}
	if _, err = io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		reserved = false
		_, err = g.joinReserved(client, backend, Options{FromA: early})
	}
	if err != nil {
		client.Close()
		return &refusal{err: err}
	}
	return nil
}

// answerStream is answer for a stream of HTTP/2.
func (p *ConnectProxy) answerStream(w http.ResponseWriter, backend net.Conn) *refusal {
	if _, err := p.Tunnels.JoinResponse(w, backend, Options{}); err != nil {
		return unjoined(err)
	}
	return nil
}

// unjoined returns the refusal of a request for which there is no tunnel.
func unjoined(err error) *refusal {
	if errors.Is(err, park.ErrMaxConns) || errors.Is(err, park.ErrServerClosed) {
		return &refusal{http.StatusServiceUnavailable, err}
	}
	return &refusal{http.StatusInternalServerError, err}
}

// maxHost is more than the length of any name or address.
const maxHost = 255

// dial connects to the host of a request.
func (p *ConnectProxy) dial(r *http.Request) (net.Conn, *refusal) {
	host, text, err := net.SplitHostPort(r.URL.Host)
	port, badPort := strconv.ParseUint(text, 10, 16)
	ports := p.Ports
	if ports == nil {
		ports = []int{443}
	}
	switch {
	case err != nil || host == "" || len(host) > maxHost || badPort != nil || port == 0:
		return nil, refused(http.StatusBadRequest, "the target is not a host and a port")
	case p.Allow == nil:
		return nil, refused(http.StatusForbidden, "Allow is nil")
	case !slices.Contains(ports, int(port)):
		return nil, refused(http.StatusForbidden, "port %d is not in Ports", port)
	}
	inside := slices.ContainsFunc(p.Inside, func(name string) bool {
		return strings.EqualFold(strings.TrimSuffix(name, "."), strings.TrimSuffix(host, "."))
	})
	d := p.Dialer
	d.Timeout = cmp.Or(d.Timeout, serving.DefaultTimeout)
	control := func(ctx context.Context, network, address string, raw syscall.RawConn) error {
		addr, err := netip.ParseAddrPort(address)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", errForbidden, err)
		case !inside && IsInside(addr.Addr()):
			return fmt.Errorf("%w: it is inside of a network", errForbidden)
		case !p.Allow(r, addr):
			return fmt.Errorf("%w: Allow has refused it", errForbidden)
		case p.Dialer.ControlContext != nil:
			return p.Dialer.ControlContext(ctx, network, address, raw)
		case p.Dialer.Control != nil:
			return p.Dialer.Control(network, address, raw)
		}
		return nil
	}
	d.ControlContext = func(ctx context.Context, network, address string, raw syscall.RawConn) error {
		return apart(func() error { return control(ctx, network, address, raw) })
	}
	conn, err := d.DialContext(r.Context(), "tcp", net.JoinHostPort(host, fmt.Sprint(port)))
	endAs(err)
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, errForbidden):
		return nil, &refusal{http.StatusForbidden, err}
	case serving.IsTimeout(err):
		return nil, &refusal{http.StatusGatewayTimeout, err}
	}
	return nil, &refusal{http.StatusBadGateway, err}
}

// apart calls f on a goroutine of its own, and returns a panic as a *PanicError, and group.ErrGoexit after
// runtime.Goexit. It is for what package net calls on goroutines of package net: a panic would end
// the process there, and Dial would wait for good after runtime.Goexit.
func apart(f func() error) (err error) {
	err = group.ErrGoexit
	done := make(chan struct{})
	go func() {
		defer close(done)
		if p := serving.Try(func() { err = f() }); p != nil {
			err = p
		}
	}()
	<-done
	return err
}

// endAs ends the goroutine of a handler as the goroutine of apart has ended.
func endAs(err error) {
	var p *park.PanicError
	switch {
	case errors.As(err, &p) && p.Value == http.ErrAbortHandler:
		panic(p.Value)
	case p != nil:
		panic(fmt.Sprintf("%v\n\n%s", p.Value, p.Stack))
	case errors.Is(err, group.ErrGoexit):
		runtime.Goexit()
	}
}
