package http2

//lint:file-ignore SA1019 the client is deprecated, and programs use it

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// extended writes an extended CONNECT request.
func (p *peer) extended(stream uint32, path string, more ...string) {
	fields := []string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "http",
		":authority", "x", ":path", path}
	p.openPart(stream, false, true, append(fields, more...)...)
}

// A handler gets an extended CONNECT request as from net/http, and can speak in both directions
// until either side has ended.
func TestExtendedConnect(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		s := &Server{ExtendedConnect: true, Server: handler(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Got", fmt.Sprint(r.Method, " ", r.Header[":protocol"], " ", r.URL, " ",
				r.RequestURI, " ", r.Host, " ", r.ContentLength, " ", r.TLS != nil))
			rc := http.NewResponseController(w)
			if err := rc.Flush(); err != nil {
				t.Error(err)
			}
			buf := make([]byte, 100)
			for {
				n, err := r.Body.Read(buf)
				if err != nil {
					return
				}
				w.Write(buf[:n])
				rc.Flush()
			}
		})}
		url := serve(t, s, secure)
		_, trust := certificate()
		tr := &http2.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}}
		if !secure {
			tr.AllowHTTP = true
			tr.DialTLSContext = func(_ context.Context, network, address string, _ *tls.Config,
			) (net.Conn, error) {
				return net.Dial(network, address)
			}
		}
		defer tr.CloseIdleConnections()
		body, send := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), "CONNECT", url+"/chat?a=b", body)
		must(t, err)
		r.Host = "host.example"
		r.Header[":protocol"] = []string{"any/1.0"}
		resp, err := tr.RoundTrip(r)
		must(t, err)
		defer resp.Body.Close()
		want := fmt.Sprint("CONNECT [any/1.0] /chat?a=b /chat?a=b host.example -1 ", secure)
		if got := resp.Header.Get("Got"); got != want || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: the handler got %q, want %q", resp.Status, got, want)
		}
		for _, text := range []string{"hello", "again"} {
			io.WriteString(send, text)
			got := make([]byte, len(text))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != text {
				t.Errorf("got %q, %v", got, err)
			}
		}
		send.Close()
		if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
			t.Errorf("at the end: %q, %v", rest, err)
		}
	})
}

// A protocol needs CONNECT, a scheme and a path, and the server must have announced it.
func TestMalformedConnect(t *testing.T) {
	for _, c := range []struct {
		what   string
		off    bool
		fields string
		right  bool
	}{
		{"extended", false, ":method CONNECT :protocol x :scheme https :authority x :path /", true},
		{"host instead of an authority", false,
			":method CONNECT :protocol x :scheme https :path / host x", true},
		{"plain", false, ":method CONNECT :authority x:443", true},
		{"off", true, ":method CONNECT :protocol x :scheme https :authority x :path /", false},
		{"off, another method", true,
			":method GET :protocol x :scheme https :authority x :path /", false},
		{"off, empty protocol", true, ":method GET :protocol  :scheme https :authority x :path /", false},
		{"another method", false, ":method GET :protocol x :scheme https :authority x :path /", false},
		{"empty protocol", false, ":method CONNECT :protocol  :scheme https :authority x :path /", false},
		{"no scheme", false, ":method CONNECT :protocol x :authority x :path /", false},
		{"another scheme", false, ":method CONNECT :protocol x :scheme ws :authority x :path /", false},
		{"no path", false, ":method CONNECT :protocol x :scheme https :authority x", false},
		{"empty path", false, ":method CONNECT :protocol x :scheme https :authority x :path ", false},
		{"twice", false,
			":method CONNECT :protocol x :protocol x :scheme https :authority x :path /", false},
		{"after a field", false,
			":method CONNECT a b :protocol x :scheme https :authority x :path /", false},
		{"the header Upgrade", false,
			":method CONNECT :protocol x :scheme https :authority x :path / upgrade websocket", false},
		{"plain with a path", false, ":method CONNECT :authority x:443 :path /", false},
		{"plain with a scheme", false, ":method CONNECT :scheme https :authority x:443", false},
		{"no protocol", false, ":method CONNECT :scheme https :authority x:443 :path /", false},
		{"plain without an authority", false, ":method CONNECT", false},
		{"plain with a host alone", false, ":method CONNECT host x:443", false},
		{"plain with an empty authority", false, ":method CONNECT :authority ", false},
		{"plain with a user", false, ":method CONNECT :authority u@x:443", false},
		{"plain with another host", false, ":method CONNECT :authority x:443 host y:443", false},
	} {
		t.Run(c.what, func(t *testing.T) {
			nothing := func(http.ResponseWriter, *http.Request) {}
			s := &Server{ExtendedConnect: !c.off, Server: handler(nothing)}
			p := dial(t, serve(t, s, false))
			p.openPart(1, true, true, strings.Split(c.fields, " ")...)
			must(t, p.send())
			want := "1 reset PROTOCOL_ERROR"
			if c.right {
				want = "1 status 200"
			}
			p.want(want)
		})
	}
}

// The extension is announced if it is on.
func TestConnectAnnounced(t *testing.T) {
	for _, on := range []bool{false, true} {
		p := dial(t, serve(t, &Server{ExtendedConnect: on, Server: handler(echo)}, false))
		f, err := p.ReadFrame()
		must(t, err)
		value, has := f.(*http2.SettingsFrame).Value(http2.SettingEnableConnectProtocol)
		if has != on || on && value != 1 {
			t.Errorf("on %t: announced %t, %d", on, has, value)
		}
	}
}
