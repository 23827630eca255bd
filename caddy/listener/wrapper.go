package listener

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

func init() { caddy.RegisterModule(new(Wrapper)) }

// Wrapper parks the idle connections of clients: a keep-alive connection of HTTP/1.1 or HTTP/2 that waits for its next
// request needs no goroutine and no buffer. Requests are handled by the same routes as before, and the timeouts, limits and
// protocols of the server apply.
//
// It must be the last of the listener wrappers. Connections of HTTP/3 are not affected. Where connections cannot be parked, they are served as without this module, and the log has the reason:
// if the server's protocols do not include h1, if listen_protocols is set, or if a wrapper between tls and this one hides the
// TLS connection.
//
// On a reload, the connections that the former configuration has accepted are served by it to the end of their first
// request. Hooks that other modules have registered for connections see one more for each listener, which ends at once. The
// metrics have the gauge caddy_park_connections, with the states open and parked.
//
// EXPERIMENTAL: Subject to change or removal.
type Wrapper struct {
	// What to use besides the parking of HTTP/1.1 connections, which is "idle" and always included. Default: all.
	//
	// - `upgrades` puts the handler `park_upgrades` before all routes of the server: connections that are
	//   upgraded through any `reverse_proxy` of the server, such as those of WebSocket, are parked too.
	// - `idle` parks connections of HTTP/1.1, with TLS and without.
	// - `http2` also parks connections of HTTP/2, which are then served by the HTTP/2 implementation of package park/http2.
	//   Without it, connections without TLS are parked only if the server's protocols are `h1` alone, because
	//   any of them may become HTTP/2.
	// - `lean_tls` replaces the record layer of crypto/tls after the handshake, for AES-GCM: an idle connection keeps 450
	//   bytes of TLS state instead of 6,600.
	Parts []string `json:"parts,omitempty"`

	ctx    caddy.Context
	logger *zap.Logger
	server *caddyhttp.Server
	http   atomic.Pointer[http.Server] // of Caddy; nil before the first connection
}

// The parts of a Wrapper.
const (
	partUpgrades = "upgrades"
	partIdle     = "idle"
	partHTTP2    = "http2"
	partLeanTLS  = "lean_tls"
)

var parts = []string{partUpgrades, partIdle, partHTTP2, partLeanTLS}

// has reports whether a part is used.
func (w *Wrapper) has(part string) bool { return len(w.Parts) == 0 || slices.Contains(w.Parts, part) }

// CaddyModule returns the Caddy module information.
func (*Wrapper) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "caddy.listeners.park",
		New: func() caddy.Module { return new(Wrapper) },
	}
}

// UnmarshalCaddyfile sets up the wrapper from Caddyfile tokens. Syntax:
//
//	park [upgrades] [idle] [http2] [lean_tls]
func (w *Wrapper) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume wrapper name
	w.Parts = d.RemainingArgs()
	if d.NextBlock(0) {
		return d.Errf("park has no block")
	}
	if err := w.Validate(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// Provision finds the HTTP server of the wrapper, and registers its hooks.
func (w *Wrapper) Provision(ctx caddy.Context) error {
	w.ctx, w.logger = ctx, ctx.Logger()
	var ok bool
	if w.server, ok = ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); !ok {
		return errors.New("the listener wrapper park is for servers of the http app alone")
	}
	if err := checkLast(w.server.ListenerWrappersRaw); err != nil {
		return err
	}
	if w.has(partUpgrades) {
		if err := parkUpgrades(w.server); err != nil && len(w.Parts) > 0 {
			return err
		}
	}
	w.server.RegisterConnContext(w.noteServer)
	w.server.RegisterOnStop(func(ctx context.Context) error {
		if !caddy.Exiting() {
			return nil // connections end in the background, as those of Caddy do on a reload
		}
		return awaitEnded(ctx)
	})
	return nil
}

// Validate verifies the configuration.
func (w *Wrapper) Validate() error {
	for _, part := range w.Parts {
		if !slices.Contains(parts, part) {
			return fmt.Errorf("parts: %q is none of %s", part, strings.Join(parts, ", "))
		}
	}
	return nil
}

// parkUpgrades puts the handler park_upgrades before the routes of a server, which Caddy sets up after the listener
// wrappers. It fails if the program does not have the module, which is in the package above.
func parkUpgrades(s *caddyhttp.Server) error {
	if _, err := caddy.GetModule("http.handlers.park_upgrades"); err != nil {
		return err
	}
	handlers := []json.RawMessage{[]byte(`{"handler":"park_upgrades"}`)}
	s.Routes = append(caddyhttp.RouteList{{HandlersRaw: handlers}}, s.Routes...)
	return nil
}

// checkLast verifies that the last of the listener wrappers is this one. Wrappers above it would see no connections.
func checkLast(wrappers []json.RawMessage) error {
	for i, raw := range wrappers {
		var module struct {
			Wrapper string `json:"wrapper"`
		}
		if err := json.Unmarshal(raw, &module); err != nil {
			return err
		}
		if parks, last := module.Wrapper == "park", i == len(wrappers)-1; parks != last {
			return errors.New("listener_wrappers: park must be the last one, and there must be one alone")
		}
	}
	return nil
}

// noteServer is a ConnContext hook. It notes Caddy's http.Server.
func (w *Wrapper) noteServer(ctx context.Context, _ net.Conn) context.Context {
	if s, ok := ctx.Value(http.ServerContextKey).(*http.Server); ok {
		w.http.CompareAndSwap(nil, s)
	}
	return ctx
}

// WrapListener returns a listener whose connections are parked. Caddy calls it for each listener of the server, before the
// server accepts.
func (w *Wrapper) WrapListener(in net.Listener) net.Listener {
	log := w.logger.With(zap.String("address", in.Addr().String()))
	switch s := w.server; {
	case !slices.Contains(s.Protocols, "h1"):
		log.Warn("connections are not parked: the server's protocols do not include h1", zap.Strings("protocols", s.Protocols))
		return in
	case slices.ContainsFunc(s.ListenProtocols, func(p []string) bool { return p != nil }):
		log.Warn("connections are not parked: listen_protocols is set")
		return in
	}
	l := &listener{Listener: in, wrapper: w, log: log, ended: make(chan struct{}), closeBelow: sync.OnceValue(in.Close)}
	if w.has(partLeanTLS) {
		l.config = w.tlsConfig()
	}
	return l
}

// tlsConfig returns a configuration that chooses a connection policy as Caddy's does, or nil if there are no policies.
func (w *Wrapper) tlsConfig() *tls.Config {
	if len(w.server.TLSConnPolicies) == 0 {
		return nil
	}
	return w.server.TLSConnPolicies.TLSConfig(w.ctx)
}

// observe registers the gauges of a listener.
func (w *Wrapper) observe(l *listener) {
	gauge := func(state string, value func() int) {
		err := w.ctx.GetMetricsRegistry().Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "caddy", Subsystem: "park", Name: "connections",
			Help:        "Connections of clients on listeners with the wrapper park: all that are open, and those that are parked.",
			ConstLabels: prometheus.Labels{"address": l.Addr().String(), "state": state},
		}, func() float64 { return float64(value()) }))
		if err != nil {
			l.log.Warn("metrics", zap.Error(err))
		}
	}
	gauge("open", func() int { return l.stats().Conns })
	gauge("parked", func() int { return l.stats().Parked })
}

var (
	_ caddy.Module          = (*Wrapper)(nil)
	_ caddy.Provisioner     = (*Wrapper)(nil)
	_ caddy.Validator       = (*Wrapper)(nil)
	_ caddy.ListenerWrapper = (*Wrapper)(nil)
	_ caddyfile.Unmarshaler = (*Wrapper)(nil)
)
