package caddy

import (
	"context"
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// A counter changes Caddy's count of requests to an upstream, which least_conn and max_requests use. Only
// reverse_proxy can change it, by one at the begin of a request and by minus one at the end. It finds
// the host that it counts for in the Upstream at both times. So the counter has a reverse_proxy of its
// own, that is not in any route, and sends a request through it. Its transport fails, and puts
// another host in the Upstream before that: one change is then for that host.
//
// A connection counts twice from its first byte until Caddy's handler returns, and never less than once.
//
// If another version of Caddy keeps the host, the changes are without effect, and TestCount fails.
type counter struct{ proxy reverseproxy.Handler }

func newCounter(ctx caddy.Context) (*counter, error) {
	c := new(counter)
	c.proxy.Transport = swapping{}
	c.proxy.LoadBalancing = &reverseproxy.LoadBalancing{SelectionPolicy: swapping{}}
	return c, c.proxy.Provision(ctx)
}

// add counts a request to the host, whose address is dial.
func (c *counter) add(host *reverseproxy.Host, dial string) {
	c.send(&reverseproxy.Upstream{Host: host, Dial: dial}, new(reverseproxy.Host))
}

// remove is the contrary of add.
func (c *counter) remove(host *reverseproxy.Host, dial string) {
	c.send(&reverseproxy.Upstream{Host: new(reverseproxy.Host), Dial: dial}, host)
}

// send sends a request, which is counted for the host of an upstream when it begins, and for another
// one when it ends.
func (c *counter) send(upstream *reverseproxy.Upstream, atEnd *reverseproxy.Host) {
	ctx := context.WithValue(context.Background(), swapKey{}, swap{upstream, atEnd})
	for key, v := range map[caddy.CtxKey]any{
		caddy.ReplacerCtxKey:   caddy.NewEmptyReplacer(),
		caddyhttp.ServerCtxKey: new(caddyhttp.Server),
		caddyhttp.VarsCtxKey:   map[string]any{caddyhttp.ClientIPVarKey: "", caddyhttp.TrustedProxyVarKey: false},
	} {
		ctx = context.WithValue(ctx, key, v)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	if err == nil {
		c.proxy.ServeHTTP(nil, r, nil) // which fails with errSwapped, and writes nothing
	}
}

type swap struct {
	upstream *reverseproxy.Upstream
	atEnd    *reverseproxy.Host
}

// swapKey is the key of the swap in the context of a request.
type swapKey struct{}

// swapping is the transport and the selection policy of a counter.
type swapping struct{}

var errSwapped = errors.New("this request was only counted")

func (swapping) Select(_ reverseproxy.UpstreamPool, r *http.Request, _ http.ResponseWriter) *reverseproxy.Upstream {
	return r.Context().Value(swapKey{}).(swap).upstream
}

func (swapping) RoundTrip(r *http.Request) (*http.Response, error) {
	s := r.Context().Value(swapKey{}).(swap)
	s.upstream.Host = s.atEnd
	return nil, errSwapped
}
