package caddy

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"reflect"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

func init() {
	caddy.RegisterModule(new(ParkUpgrades))
	httpcaddyfile.RegisterHandlerDirective("park_upgrades", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		p := new(ParkUpgrades)
		return p, p.UnmarshalCaddyfile(h.Dispenser)
	})
	// Before the first directive that may have a reverse_proxy inside.
	httpcaddyfile.RegisterDirectiveOrder("park_upgrades", httpcaddyfile.Before, "invoke")
}

// ParkUpgrades makes connections that are upgraded through `reverse_proxy`, such as those of WebSocket,
// need no goroutine and no buffer while nothing moves.
//
// It applies to the proxies that come after it in the same list of routes, and to those inside of
// these. Where they have the transport `http`, or none, they get the transport `park`, which has the
// same options. A proxy elsewhere, such as in a named route, needs `transport park` itself.
//
// Upgrades over HTTP/2 and HTTP/3, and those through a transport with `read_timeout` or
// `write_timeout`, are left to Caddy's own copying.
//
// An open connection counts as a request to its upstream, as without this handler. The access log has
// its entry when the connection begins, with status 101, and a second one, `closed upgraded connection`,
// when it ends. Durations and spans end when it begins.
type ParkUpgrades struct {
	access *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (*ParkUpgrades) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.park_upgrades",
		New: func() caddy.Module { return new(ParkUpgrades) },
	}
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	park_upgrades [<matcher>]
func (*ParkUpgrades) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the name of the directive
	if d.NextArg() || d.NextBlock(0) {
		return d.ArgErr()
	}
	return nil
}

// Provision gives the proxies behind the handler the transport that they need.
func (p *ParkUpgrades) Provision(ctx caddy.Context) error {
	p.access = ctx.Logger(new(caddyhttp.App)).Named("log.access")
	modules := ctx.Modules()
	if len(modules) < 2 || !parkRoutesOf(modules[len(modules)-2]) {
		ctx.Logger().Warn("the routes of this handler are not known: reverse_proxy needs transport park itself")
	}
	return registerMetrics(ctx)
}

func (p *ParkUpgrades) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) (err error) {
	if r.ProtoMajor != 1 || r.Header.Get("Upgrade") == "" || r.Context().Value(upgradeKey{}) != nil {
		return next.ServeHTTP(w, r) // or the handler is there twice
	}
	u := &upgrade{log: p.lastLine(r)}
	tunnels.Handler(http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		*r = *in // Caddy's placeholders have the pointer
		err = next.ServeHTTP(w, r)
	})).ServeHTTP(hijacker{w}, r.WithContext(context.WithValue(r.Context(), upgradeKey{}, u)))
	if u.joined && u.proxy.ended.Load() {
		farewell(u.proxy) // it may have missed the tunnel
	}
	return err
}

// A hijacker gives a proxy connections whose wrappers by Caddy a tunnel need not have.
type hijacker struct{ http.ResponseWriter }

// Unwrap is for http.ResponseController.
func (h hijacker) Unwrap() http.ResponseWriter { return h.ResponseWriter }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if below := withoutWrappers(conn); below != conn {
		conn = &wrappedConn{conn, below}
	}
	return conn, rw, nil
}

// A wrappedConn is a connection with wrappers.
type wrappedConn struct {
	net.Conn
	below net.Conn
}

// Detach is called when the connection becomes a part of a tunnel.
func (c *wrappedConn) Detach() (conn net.Conn, unread []byte) { return c.below, nil }

// withoutWrappers returns the connection below Caddy's wrappers that only count bytes, look for the
// preface of HTTP/2, or hide a method. They have the connection in an exported field. One that is not
// known stays, and costs memory.
func withoutWrappers(conn net.Conn) net.Conn {
	for {
		v := reflect.Indirect(reflect.ValueOf(conn))
		if v.Kind() != reflect.Struct || v.Type().PkgPath() != reflect.TypeFor[caddyhttp.Server]().PkgPath() {
			return conn
		}
		switch v.Type().Name() {
		case "hijackedConn", "http2Conn", "tlsStateConn":
		default:
			return conn
		}
		field := v.FieldByName("Conn")
		if !field.IsValid() {
			return conn
		}
		below, ok := field.Interface().(net.Conn)
		if !ok {
			return conn
		}
		conn = below
	}
}

// Interface guards
var (
	_ caddy.Provisioner           = (*ParkUpgrades)(nil)
	_ caddyhttp.MiddlewareHandler = (*ParkUpgrades)(nil)
	_ caddyfile.Unmarshaler       = (*ParkUpgrades)(nil)
)
