package http2

//lint:file-ignore SA1019 the client is deprecated, and programs use it

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/park"
)

// A reverse proxy between two connections of HTTP/2 passes on CONNECT requests with a protocol, but
// not with one by which HTTP goes on inside, unless that is allowed.
func TestReverseProxyProtocols(t *testing.T) {
	for _, c := range []struct {
		protocol string
		allowed  bool
		want     int
	}{{"websocket", false, 200}, {"h2c", false, 501}, {"H2C", false, 501}, {"h2c", true, 200}} {
		got := make(chan string, 10)
		backend := serve(t, &Server{ExtendedConnect: true, Server: handler(func(w http.ResponseWriter, r *http.Request) {
			got <- r.Header.Get(":protocol")
			w.WriteHeader(200)
		})}, false)
		target, err := url.Parse(backend)
		must(t, err)
		tr := &http2.Transport{AllowHTTP: true, DialTLSContext: func(_ context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
			return net.Dial(network, address)
		}}
		tunnels := park.Tunnels{UpgradeToHTTP: c.allowed}
		proxy := serve(t, &Server{ExtendedConnect: true, Server: &http.Server{Handler: tunnels.ReverseProxy(
			&httputil.ReverseProxy{Transport: tr, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})}}, false)
		body, end := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), "CONNECT", proxy+"/", body)
		must(t, err)
		r.Header[":protocol"] = []string{c.protocol}
		resp, err := tr.RoundTrip(r)
		must(t, err)
		end.Close()
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s: status %d, want %d", c.protocol, resp.StatusCode, c.want)
		}
		select {
		case p := <-got:
			if c.want != 200 || p != c.protocol {
				t.Errorf("%s: the backend got a request with %q", c.protocol, p)
			}
		default:
			if c.want == 200 {
				t.Errorf("%s: the backend got no request", c.protocol)
			}
		}
		tr.CloseIdleConnections()
	}
}
