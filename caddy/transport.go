package caddy

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func init() { caddy.RegisterModule(new(Transport)) }

// Transport is the transport `http` of `reverse_proxy`, with all its options, for proxies behind the
// handler `park_upgrades`: it takes part in connections that are upgraded. Requests are sent as by the
// transport `http`.
//
// The options `stream_timeout` and `stream_close_delay` of the proxy apply. When the configuration of
// the proxy ends, and when Caddy is stopped, both peers of a WebSocket get a close frame with code
// 1001, unless a part of a frame is under way, and have five seconds to answer it.
type Transport struct {
	reverseproxy.HTTPTransport

	parked                          http.RoundTripper // nil if upgrades are left to Caddy
	counter                         *counter
	streamTimeout, streamCloseDelay time.Duration
	ended                           atomic.Bool // the tunnels of this proxy have had their farewell
}

// CaddyModule returns the Caddy module information.
func (*Transport) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.transport.park",
		New: func() caddy.Module { return new(Transport) },
	}
}

// Provision sets up the transport.
func (t *Transport) Provision(ctx caddy.Context) error {
	if err := t.HTTPTransport.Provision(ctx); err != nil {
		return err
	}
	if t.ReadTimeout > 0 || t.WriteTimeout > 0 {
		return nil // its connections look after these
	}
	modules := ctx.Modules()
	if len(modules) < 2 {
		return nil
	}
	proxy, ok := modules[len(modules)-2].(*reverseproxy.Handler)
	if !ok {
		return nil // it has no upgraded connections
	}
	t.streamTimeout, t.streamCloseDelay = time.Duration(proxy.StreamTimeout), time.Duration(proxy.StreamCloseDelay)
	counter, err := newCounter(ctx)
	if err != nil {
		return err
	}
	t.counter, t.parked = counter, tunnels.RoundTripper(&t.HTTPTransport)
	return nil
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.parked == nil {
		return t.HTTPTransport.RoundTrip(r)
	}
	if u, ok := r.Context().Value(upgradeKey{}).(*upgrade); ok {
		di, ok := reverseproxy.GetDialInfo(r.Context())
		if !ok || di.Upstream == nil {
			return t.HTTPTransport.RoundTrip(r)
		}
		u.proxy, u.upstream, u.dial = t, di.Upstream.Host, di.String()
	}
	return t.parked.RoundTrip(r)
}

// Cleanup ends the upgraded connections, or begins the time that they have left.
func (t *Transport) Cleanup() error {
	end := func() {
		t.ended.Store(true)
		farewell(t)
	}
	if t.streamCloseDelay > 0 {
		time.AfterFunc(t.streamCloseDelay, end)
	} else {
		end()
	}
	return t.HTTPTransport.Cleanup()
}

// Interface guards
var (
	_ caddy.Provisioner                                = (*Transport)(nil)
	_ caddy.CleanerUpper                               = (*Transport)(nil)
	_ http.RoundTripper                                = (*Transport)(nil)
	_ caddyfile.Unmarshaler                            = (*Transport)(nil)
	_ reverseproxy.TLSTransport                        = (*Transport)(nil)
	_ reverseproxy.H2CTransport                        = (*Transport)(nil)
	_ reverseproxy.HealthCheckSchemeOverriderTransport = (*Transport)(nil)
	_ reverseproxy.ProxyProtocolTransport              = (*Transport)(nil)
	_ reverseproxy.RequestHeaderOpsTransport           = (*Transport)(nil)
)
