package browser

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2"
	"github.com/socknotify/socknotify/test/chromium"
)

// together is how many requests of the site's page are open at once.
const together = 100

// A site is a page whose parts are requests of different kinds.
type site struct {
	mu      sync.Mutex
	remotes map[string]int // requests of each address
	others  []string       // protocols that are not HTTP/2
	waiting int            // requests for /together
	all     chan bool      // closed when all of them have come
	next    chan bool
	aborted chan bool
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.remotes[r.RemoteAddr]++
	if r.Proto != "HTTP/2.0" || r.TLS == nil {
		s.others = append(s.others, r.Proto)
	}
	s.mu.Unlock()
	rc := http.NewResponseController(w)
	kind, _, _ := strings.Cut(r.URL.Path[1:], "/")
	switch kind {
	case "":
		fmt.Fprint(w, `<!DOCTYPE html><link rel="icon" href="data:,">`,
			`<script>performance.setResourceTimingBufferSize(1000)</script>`)
		for i := range together {
			fmt.Fprintf(w, `<img src="/image/%d">`, i)
		}
	case "image":
		w.Header().Set("Content-Type", "image/svg+xml")
		io.WriteString(w, `<svg xmlns="http://www.w3.org/2000/svg" width="4" height="4"><rect width="4" height="4"/></svg>`)
	case "together":
		s.mu.Lock()
		if s.waiting++; s.waiting == together {
			close(s.all)
		}
		s.mu.Unlock()
		select {
		case <-s.all:
			fmt.Fprint(w, r.URL.Path)
		case <-r.Context().Done():
		}
	case "echo":
		io.Copy(w, r.Body)
	case "next":
		s.next <- true
	case "stream": // the client asks for each part when it has received the one before
		for i := range 4 {
			fmt.Fprint(w, i)
			if rc.Flush() != nil {
				return
			}
			select {
			case <-s.next:
			case <-r.Context().Done():
				return
			}
		}
	case "endless":
		fmt.Fprint(w, "x")
		rc.Flush()
		<-r.Context().Done()
		s.aborted <- true
	default:
		fmt.Fprint(w, r.Method, r.URL.Path)
	}
}

// Chromium is served by park/http2: a page with many parts at once, bodies, a stream, and a request that it aborts. Its
// connection is parked, and the next request uses the same one.
func TestHTTP2(t *testing.T) {
	cert, _, err := selfcert.New(24*time.Hour, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &site{remotes: make(map[string]int), all: make(chan bool), next: make(chan bool), aborted: make(chan bool, 1)}
	open := make(map[net.Conn]bool)
	s := &park.HTTPServer{HTTP2: new(http2.Server), Linger: -1, Server: &http.Server{Handler: h,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}},
		ConnState: func(conn net.Conn, state http.ConnState) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if open[conn] = true; state == http.StateClosed {
				delete(open, conn)
			}
		}}}
	served := make(chan error, 1)
	go func() { served <- s.ServeTLS(ln, "", "") }()
	t.Cleanup(func() {
		s.Close()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != http.ErrServerClosed {
			t.Error(err)
		}
	})

	b := newBrowser(t, chromedp.IgnoreCertErrors)
	b.Do(chromedp.Navigate("https://" + ln.Addr().String() + "/"))
	b.Until("all images are loaded", fmt.Sprintf(
		"document.images.length === %d && [...document.images].every(i => i.complete && i.naturalWidth === 4)", together))
	if n := chromium.Eval[int](b.Tab, fmt.Sprintf(`Promise.all(Array.from({length: %d}, (_, i) =>
		fetch('/together/' + i).then(r => r.text()).then(text => text === '/together/' + i)))
		.then(all => all.filter(x => x).length)`, together)); n != together {
		t.Errorf("%d answers of %d were right", n, together)
	}
	if !chromium.Eval[bool](b.Tab, `(() => {
		const body = Uint8Array.from({length: 3000000}, (_, i) => i * i >> 3);
		return fetch('/echo', {method: 'POST', body}).then(r => r.arrayBuffer()).then(got =>
			got.byteLength === body.length && new Uint8Array(got).every((x, i) => x === body[i]));
	})()`) {
		t.Error("the body that came back is another one")
	}
	if text := chromium.Eval[string](b.Tab, `(async () => {
		const reader = (await fetch('/stream')).body.getReader();
		let text = '';
		for (;;) {
			const {value, done} = await reader.read();
			if (done) return text;
			text += new TextDecoder().decode(value) + ' ';
			await fetch('/next', {method: 'POST'});
		}
	})()`); text != "0 1 2 3 " {
		t.Errorf("the stream's parts are %q", text)
	}
	if name := chromium.Eval[string](b.Tab, `(async () => {
		const control = new AbortController();
		const reader = (await fetch('/endless', {signal: control.signal})).body.getReader();
		await reader.read();
		control.abort();
		return reader.read().then(() => 'no error', e => e.name);
	})()`); name != "AbortError" {
		t.Errorf("the aborted request ends with %s", name)
	}
	<-h.aborted

	for i := range 3 {
		h.parked(t, s, open)
		parks := s.Stats().Parks
		text := chromium.Eval[string](b.Tab, fmt.Sprintf(`fetch('/later/%d').then(r => r.text())`, i))
		if text != fmt.Sprint("GET/later/", i) {
			t.Errorf("%q", text)
		}
		h.parked(t, s, open)
		if n := s.Stats().Parks; n == parks {
			t.Error("the connection was not parked again")
		}
	}
	protocols := chromium.Eval[[]string](b.Tab, `['navigation', 'resource'].flatMap(type => performance.getEntriesByType(type))
		.filter(e => e.name.startsWith('https:')).map(e => e.nextHopProtocol)`)
	const requests = 1 + 2*together + 1 + 1 + 4 + 1 + 3
	if n := len(protocols); n != requests || slices.ContainsFunc(protocols, func(p string) bool { return p != "h2" }) {
		t.Errorf("the protocols of %d requests, want %d: %q", n, requests, protocols)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.remotes) != 1 || len(h.others) > 0 {
		t.Errorf("requests by connection: %v, without HTTP/2: %q", h.remotes, h.others)
	}
}

// parked waits until all connections are parked.
func (s *site) parked(t *testing.T, server *park.HTTPServer, open map[net.Conn]bool) {
	t.Helper()
	await.Until(t, "all connections are parked", func() bool {
		s.mu.Lock()
		n := len(open)
		s.mu.Unlock()
		st := server.Stats()
		return n > 0 && st.Parked == n && st.Running == 0
	})
}
