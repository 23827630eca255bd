package http2

//lint:file-ignore SA1019 the client is deprecated, and programs use it

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/socknotify/socknotify/tunnel"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/sse"
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
		tunnels := tunnel.Tunnels{UpgradeToHTTP: c.allowed}
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

// A client of package sse behind a reverse proxy has its answer before the first event, by either protocol on either side,
// from net/http's servers and ours. When it goes, the server notices.
func TestReverseProxyEvents(t *testing.T) {
	clients := map[string]func(testing.TB) *http.Client{"HTTP/1.1": client1, "HTTP/2": client}
	servers(t, func(t *testing.T, start func(hs *http.Server) string) {
		for behind, backend := range clients {
			for front, browser := range clients {
				for _, ours := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, %s, %t", front, behind, ours), func(t *testing.T) {
						gone := make(chan error, 1)
						events := &sse.Server{Retry: retryNone, Heartbeat: -1, OnClose: func(_ *sse.Conn, err error) { gone <- err }}
						target, err := url.Parse(start(&http.Server{Handler: events}))
						must(t, err)
						proxy := &httputil.ReverseProxy{Transport: backend(t).Transport,
							Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
						var h http.Handler = proxy
						if ours {
							h = new(tunnel.Tunnels).ReverseProxy(proxy)
						}
						ctx, cancel := context.WithCancel(t.Context())
						r, err := http.NewRequestWithContext(ctx, "GET", start(&http.Server{Handler: h}), nil)
						must(t, err)
						resp, err := browser(t).Do(r)
						must(t, err)
						defer resp.Body.Close()
						if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != sse.ContentType || fmt.Sprint("HTTP/", resp.ProtoMajor) != front[:6] {
							t.Errorf("%s %s %v", resp.Proto, resp.Status, resp.Header)
						}
						sent := event(t, "first")
						until(t, "the client is there", func() bool { return events.Broadcast(sent) == 1 })
						in := bufio.NewReader(resp.Body)
						for line := ""; line != "data: first\n"; {
							line, err = in.ReadString('\n')
							must(t, err)
						}
						cancel()
						if err := await.Receive(t, "OnClose", gone); !errors.Is(err, io.EOF) {
							t.Error(err)
						}
						must(t, events.Shutdown(context.Background()))
					})
				}
			}
		}
	})
}
