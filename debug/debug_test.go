package debug_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/internal/debugdata"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// timeout is the time that a test waits for anything that must happen.
const timeout = time.Minute

const oneShot = socknotify.TriggerLevel | socknotify.TriggerOneShot

func newPort[K comparable](t testing.TB) *socknotify.Port[K] {
	t.Helper()
	backendtest.Need(t)
	p, err := socknotify.New[K]()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// must ends the test if there is an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// newUDP returns a socket that is always writable.
func newUDP(t testing.TB) *sock.Socket {
	t.Helper()
	s, err := sock.New(sock.UDP4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	must(t, s.Bind(sock.Loopback))
	return s
}

func enable[K comparable](t testing.TB, p *socknotify.Port[K], s *sock.Socket, key K, filter socknotify.Events) {
	t.Helper()
	regs := []socknotify.Registration[K]{socknotify.Enable(s, key, filter, oneShot)}
	if _, err := p.Process(regs, nil, 0); err != nil || regs[0].Result != nil {
		t.Fatal(err, regs[0].Result)
	}
}

// serve starts a server with a page below a prefix.
func serve(t testing.TB, options ...debug.Option) (page *debug.Handler, url string) {
	t.Helper()
	page = debug.New(options...)
	t.Cleanup(page.Close)
	mux := http.NewServeMux()
	mux.Handle("/some/where/", page)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return page, server.URL + "/some/where/"
}

// open makes a request. The body is closed at the end of the test.
func open(t testing.TB, url string) *http.Response {
	t.Helper()
	resp, err := http.Get(url)
	must(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// get requests a view and verifies the status of the answer.
func get[V any](t testing.TB, url string, status int) (v V) {
	t.Helper()
	resp := open(t, url)
	if resp.StatusCode != status || resp.Header.Get("Content-Type") != "application/json" {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s, %s; want %d: %s", url, resp.Status, resp.Header.Get("Content-Type"), status, b)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return decoded[V](t, b)
}

// notify makes a port report a socket that is writable.
func notify[K comparable](t testing.TB, p *socknotify.Port[K], s *sock.Socket, key K) {
	t.Helper()
	enable(t, p, s, key, socknotify.EventOut)
	if _, err := p.Process(nil, make([]socknotify.Notification[K], 1), timeout); err != nil {
		t.Fatal(err)
	}
}

func TestViews(t *testing.T) {
	t.Parallel() // it waits
	p := newPort[string](t)
	s := newUDP(t)
	_, url := serve(t, debug.Port("first", p), debug.Port("second", newPort[int](t)))
	notify(t, p, s, "able")

	ports := get[debugdata.Ports](t, url+"ports", 200)
	if ports.Remote {
		t.Error("the page serves remote requests")
	}
	if len(ports.Ports) != 2 || ports.Ports[0] != (debugdata.PortName{Name: "first", Backend: p.Backend()}) {
		t.Errorf("%+v", ports)
	}
	st := get[debugdata.Status](t, url+"status?port=first", 200)
	if st.Port != "first" || st.Counts.Registrations != 1 || st.Counts.Notifications != 1 || st.Observed.IsZero() || st.Closed || len(st.Spread) == 0 {
		t.Errorf("%+v", st)
	}
	rows := get[debugdata.Registrations](t, url+"registrations?port=first", 200)
	if rows.Total != 1 || rows.Matched != 1 || rows.States["fired"] != 1 || len(rows.Rows) != 1 {
		t.Fatalf("%+v", rows)
	}
	r := rows.Rows[0]
	if r.Socket != uint64(s.Handle()) || r.Key != "able" || r.Network != "udp" || r.Local != s.LocalAddr().String() || r.Remote != "" ||
		r.Filter != "OUT" || r.Trigger != "level|one-shot" || r.State != "fired" || r.Notifications != 1 || r.Last != "OUT" ||
		r.LastTime.IsZero() || r.Since.IsZero() || r.ID == 0 || r.Gone != "" {
		t.Errorf("%+v", r)
	}
	h := get[debugdata.History](t, url+"history?port=first", 200)
	if len(h.Samples) == 0 || h.Samples[0].Number != 0 || h.Samples[0].Time.IsZero() {
		t.Errorf("%+v", h)
	}
	await.Until(t, "a second sample has the notification", func() bool {
		h = get[debugdata.History](t, url+"history?port=first&after=0", 200)
		n := len(h.Samples)
		return n > 0 && h.Samples[n-1].Notifications == 1
	})
	if h.Samples[0].Number != 1 {
		t.Errorf("%+v", h)
	}
	// A rate is that of the latest few seconds, so another notification follows if these are over.
	notified := uint64(1)
	rate := func() float64 { return get[debugdata.Status](t, url+"status?port=first", 200).Rates.Notifications }
	for now := rate(); now <= 0 || now > 100; now = rate() {
		if now > 100 || notified == 100 {
			t.Fatalf("%d notifications make a rate of %v", notified, now)
		}
		notify(t, p, s, "able")
		notified++
	}
	all := get[debugdata.View](t, url+"view?port=first&after=0&sort=key", 200)
	if all.Status.Port != "first" || all.Status.Counts.Notifications != notified || len(all.Registrations.Rows) != 1 ||
		all.Registrations.Rows[0].Key != "able" || len(all.History.Samples) == 0 || all.History.Samples[0].Number != 1 {
		t.Errorf("%+v", all)
	}
	if s.Close(); len(get[debugdata.Registrations](t, url+"registrations?port=first", 200).Rows) != 0 {
		t.Error("a closed socket is registered")
	}
	p.Close()
	if st := get[debugdata.Status](t, url+"status?port=first", 200); !st.Closed {
		t.Error("a closed port is not reported as closed")
	}
}

func TestInvalidRequests(t *testing.T) {
	_, url := serve(t, debug.Port("first", newPort[int](t)), debug.Port("second", newPort[int](t)))
	for _, c := range []struct {
		query  string
		status int
		want   string
	}{
		{"status", 400, "port is missing"},
		{"status?port=third", 404, `"third"`},
		{"nothing", 404, "nothing"},
		{"../where/page", 404, "page"},
		{"registrations?port=first&sort=colour", 400, "colour"},
		{"view?port=first&sort=colour", 400, "colour"},
		{"view?port=first&after=x", 400, "after"},
		{"view", 400, "port is missing"},
		{"registrations?port=first&order=up", 400, "up"},
		{"registrations?port=first&offset=-1", 400, "offset"},
		{"registrations?port=first&limit=0", 400, "limit"},
		{"registrations?port=first&limit=1001", 400, "limit"},
		{"history?port=first&after=x", 400, "after"},
		{"registrations?port=first&q=" + strings.Repeat("a+", 16) + "a", 400, "17 words"},
		{"view?port=first&q=" + strings.Repeat("a+", 16) + "a", 400, "17 words"},
		{"registrations?port=first&q=" + strings.Repeat("a+", 400_000), 414, "4096"},
		{"trace?port=first&kind=" + strings.Repeat("a", 5000), 414, "4096"},
		{"trace?port=first&socket=x", 400, "socket"},
		{"trace?port=first&kind=x", 400, "kind"},
	} {
		if f := get[debugdata.Failure](t, url+c.query, c.status); !strings.Contains(f.Error, c.want) {
			t.Errorf("%s: %q", c.query, f.Error)
		}
	}
	resp, err := http.Post(url+"status?port=first", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %s", resp.Status)
	}
}

func TestSearchSortAndPages(t *testing.T) {
	const sockets = 120
	p := newPort[int](t)
	_, url := serve(t, debug.Port("p", p, func(k int) string { return fmt.Sprintf("key-%03d", k) }))
	all := make([]*sock.Socket, sockets)
	for i := range all {
		all[i] = newUDP(t)
		filter := socknotify.EventIn
		if i%10 == 0 {
			filter = socknotify.EventIn | socknotify.EventHangup
		}
		enable(t, p, all[i], sockets-i, filter)
	}
	ask := func(query string) debugdata.Registrations {
		t.Helper()
		return get[debugdata.Registrations](t, url+"registrations?"+query, 200)
	}
	if r := ask(""); r.Total != sockets || r.Matched != sockets || len(r.Rows) != 50 {
		t.Errorf("%d, %d, %d rows", r.Total, r.Matched, len(r.Rows))
	}
	if r := ask("q=" + all[7].LocalAddr().String()); r.Total != sockets || r.Matched != 1 || r.Rows[0].Key != "key-113" {
		t.Errorf("by address: %+v", r)
	}
	if r := ask("q=HangUp+key"); r.Matched != sockets/10 {
		t.Errorf("two words: %d", r.Matched)
	}
	if r := ask("q=nothing"); r.Matched != 0 || r.Rows == nil {
		t.Errorf("nothing: %+v", r)
	}
	if r := ask("state=enabled"); r.Matched != sockets || r.States["enabled"] != sockets {
		t.Errorf("by state: %+v", r.States)
	}
	if r := ask("state=fired"); r.Matched != 0 {
		t.Errorf("by state: %d", r.Matched)
	}
	if r := ask("sort=key&limit=3"); r.Rows[0].Key != "key-001" || r.Rows[2].Key != "key-003" {
		t.Errorf("by key: %+v", r.Rows)
	}
	if r := ask("sort=key&order=desc&limit=3&offset=119"); len(r.Rows) != 1 || r.Rows[0].Key != "key-001" || r.Offset != 119 {
		t.Errorf("the last page: %+v", r)
	}
	if r := ask("offset=500"); len(r.Rows) != 0 || r.Matched != sockets {
		t.Errorf("beyond the last: %+v", r)
	}
	for _, column := range []string{"socket", "key", "local", "remote", "filter", "trigger", "state", "notifications", "last", "since"} {
		up, down := ask("limit=1000&sort="+column).Rows, ask("limit=1000&order=desc&sort="+column).Rows
		if len(up) != sockets || len(down) != sockets {
			t.Errorf("%s: %d and %d rows", column, len(up), len(down))
		}
		seen := map[uint64]bool{}
		for _, r := range up {
			seen[r.ID] = true
		}
		if len(seen) != sockets {
			t.Errorf("%s: %d different rows", column, len(seen))
		}
	}
}

func TestKeyText(t *testing.T) {
	type pair struct {
		Name string
		N    int
	}
	value := struct{ changing int }{}
	for _, c := range []struct {
		key  any
		want string
	}{
		{"text", "text"}, {42, "42"}, {uint8(7), "7"}, {1.5, "1.5"}, {true, "true"}, {nil, "nil"},
		{pair{"x", 1}, "{x 1}"}, {[2]bool{true, false}, "[true false]"},
		{stringerKey("quiet"), "quiet"}, {(*int)(nil), "nil"},
		{&value, fmt.Sprintf("*struct { changing int } %p", &value)},
		{strings.Repeat("ä", 300), strings.Repeat("ä", 100) + "…"},
	} {
		p := newPort[any](t)
		_, url := serve(t, debug.Port("p", p))
		enable(t, p, newUDP(t), c.key, socknotify.EventIn)
		if r := get[debugdata.Registrations](t, url+"registrations", 200).Rows[0]; r.Key != c.want {
			t.Errorf("%v is shown as %q; want %q", c.key, r.Key, c.want)
		}
	}
}

// A stringerKey is a key with a String method that must not be called.
type stringerKey string

func (stringerKey) String() string { panic("called") }

func TestTrace(t *testing.T) {
	for _, sse := range []bool{false, true} {
		p := newPort[string](t)
		page, url := serve(t, debug.Port("p", p))
		s := newUDP(t)
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "GET", url+"trace", nil)
		if err != nil {
			t.Fatal(err)
		}
		kind := "application/x-ndjson"
		if sse {
			kind = "text/event-stream"
			req.Header.Set("Accept", kind)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != kind {
			t.Fatal(resp.Status, resp.Header)
		}
		notify(t, p, s, "able")
		var got []debugdata.Event
		for lines := bufio.NewScanner(resp.Body); len(got) < 2 && lines.Scan(); {
			line := lines.Text()
			if sse {
				var some []debugdata.Event
				if data, ok := strings.CutPrefix(line, "data: "); ok {
					must(t, json.Unmarshal([]byte(data), &some))
				}
				got = append(got, some...)
				continue
			}
			var e debugdata.Event
			must(t, json.Unmarshal([]byte(line), &e))
			got = append(got, e)
		}
		if len(got) != 2 {
			t.Fatalf("%+v", got)
		}
		for i, want := range []debugdata.Event{{Kind: "registered"}, {Kind: "notified", Events: "OUT"}} {
			g := got[i]
			if g.Kind != want.Kind || g.Events != want.Events || g.Socket != uint64(s.Handle()) || g.Key != "able" ||
				g.Local != s.LocalAddr().String() || g.ID == 0 || g.Time.IsZero() {
				t.Errorf("sse %t: %+v; want %+v", sse, g, want)
			}
		}
		page.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Errorf("the stream does not end cleanly when the page is closed: %v", err)
		}
	}
}

// A trace ends when the port is closed, and there are never more than maxTraces.
func TestTraceEndsWithPort(t *testing.T) {
	p := newPort[int](t)
	_, url := serve(t, debug.Port("p", p))
	var bodies []io.ReadCloser
	for range 16 {
		resp := open(t, url+"trace")
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		bodies = append(bodies, resp.Body)
	}
	if f := get[debugdata.Failure](t, url+"trace", 503); !strings.Contains(f.Error, "16") {
		t.Error(f.Error)
	}
	p.Close()
	for _, body := range bodies {
		if _, err := io.Copy(io.Discard, body); err != nil {
			t.Error(err)
		}
	}
	if f := get[debugdata.Failure](t, url+"trace", 410); !strings.Contains(f.Error, "closed") {
		t.Error(f.Error)
	}
}

func TestCloseEndsObservation(t *testing.T) {
	p := newPort[int](t)
	page := debug.New(debug.Port("p", p))
	if debug.TakeSnapshot(p, 0, 0).Observed.IsZero() {
		t.Error("the port is not observed")
	}
	page.Close()
	page.Close()
	if !debug.TakeSnapshot(p, 0, 0).Observed.IsZero() {
		t.Error("the port is still observed")
	}
	if w := answer(page, request("GET", "/ports")); w.Code != http.StatusServiceUnavailable {
		t.Error(w.Code)
	}
}

func TestDuplicateNames(t *testing.T) {
	s := new(server.Server[int])
	for name, options := range map[string][]debug.Option{
		"ports":   {debug.Port("p", newPort[int](t)), debug.Port("p", newPort[int](t))},
		"servers": {debug.Server("s", s), debug.Server("s", s)},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			debug.New(options...)
		})
	}
}

// request returns a request from this machine.
func request(method, path string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
	return r
}

// answer returns the answer to a request.
func answer(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestFiles(t *testing.T) {
	page := debug.New(debug.Port("p", newPort[int](t)))
	defer page.Close()
	for path, kind := range map[string]string{
		"/":                     "text/html; charset=utf-8",
		"/debug/socknotify/":    "text/html; charset=utf-8",
		"/x/app.js":             "text/javascript; charset=utf-8",
		"/x/charts.js":          "text/javascript; charset=utf-8",
		"/x/style.css":          "text/css; charset=utf-8",
		"/x/icon.svg":           "image/svg+xml",
		"/debug/socknotify/x/.": "application/json", // no such file
	} {
		for _, method := range []string{"GET", "HEAD"} {
			w := answer(page, request(method, path))
			if got := w.Header().Get("Content-Type"); got != kind {
				t.Errorf("%s %s: %d, %s", method, path, w.Code, got)
			}
			csp := w.Header().Get("Content-Security-Policy")
			if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: %v", path, w.Header())
			}
			if method == "HEAD" && kind != "application/json" && w.Body.Len() != 0 {
				t.Errorf("HEAD %s has a body", path)
			}
		}
	}
}

func TestAccess(t *testing.T) {
	closed := debug.New()
	open := debug.New(debug.AllowRemote(), debug.AllowHosts("ops.example"))
	defer closed.Close()
	defer open.Close()
	for _, c := range []struct {
		from, host string
		header     map[string]string
		may, open  bool
	}{
		{"127.0.0.1:9", "127.0.0.1:6060", nil, true, true},
		{"[::1]:9", "[::1]:6060", nil, true, true},
		{"[::1]:9", "[::1]", nil, true, true},
		{"[::ffff:127.0.0.1]:9", "localhost:6060", nil, true, true},
		{"127.0.0.1:9", "LOCALHOST.", nil, true, true},
		{"127.0.0.1:9", "app.localhost:80", nil, true, true},
		{"127.0.0.1", "localhost", nil, true, true}, // as set by some middleware
		{"::1", "localhost", nil, true, true},
		{"@", "localhost", nil, false, true},
		{"", "localhost", nil, false, true},
		{"203.0.113.7", "localhost", nil, false, true},
		{"2001:db8::1", "localhost", nil, false, true},
		{"203.0.113.7:http", "localhost", nil, false, true},
		{"127.0.0.1, 203.0.113.7", "localhost", nil, false, true},
		{"localhost:9", "localhost", nil, false, true},
		{"127.0.0.1:9", "127.0.0.1", map[string]string{"X-Forwarded-For": "203.0.113.7"}, false, true},
		{"127.0.0.1:9", "127.0.0.1", map[string]string{"x-forwarded-host": "a.example"}, false, true},
		{"127.0.0.1:9", "127.0.0.1", map[string]string{"Forwarded": "for=203.0.113.7"}, false, true},
		{"127.0.0.1:9", "127.0.0.1", map[string]string{"Via": "1.1 proxy"}, false, true},
		{"127.0.0.1:9", "127.0.0.1", map[string]string{"X-Real-IP": "203.0.113.7"}, false, true},
		{"192.0.2.1:9", "127.0.0.1:6060", nil, false, true},
		{"[2001:db8::1]:9", "[2001:db8::2]:6060", nil, false, true},
		{"127.0.0.1:9", "evil.example:6060", nil, false, false},
		{"127.0.0.1:9", "localhost.evil.example", nil, false, false},
		{"127.0.0.1:9", "", nil, false, false},
		{"127.0.0.1:9", "OPS.example:6060", nil, false, true},
		{"192.0.2.1:9", "ops.example", nil, false, true},
		{"127.0.0.1:9", "localhost", map[string]string{"Sec-Fetch-Site": "same-origin"}, true, true},
		{"127.0.0.1:9", "localhost", map[string]string{"Sec-Fetch-Site": "none"}, true, true},
		{"127.0.0.1:9", "localhost", map[string]string{"Sec-Fetch-Site": "cross-site"}, false, false},
		{"127.0.0.1:9", "localhost", map[string]string{"Sec-Fetch-Site": "same-site"}, false, false},
		{"127.0.0.1:9", "localhost", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, true, true},
		{"127.0.0.1:9", "localhost", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, false, false},
	} {
		for page, may := range map[*debug.Handler]bool{closed: c.may, open: c.open} {
			r := request("GET", "/ports")
			r.RemoteAddr, r.Host = c.from, c.host
			for name, v := range c.header {
				r.Header.Set(name, v)
			}
			checkAccess(t, page, r, may)
		}
	}
}

// checkAccess fails unless a page answers a request, or refuses it.
func checkAccess(t *testing.T, page *debug.Handler, r *http.Request, may bool) {
	t.Helper()
	if w := answer(page, r); w.Code != map[bool]int{true: 200, false: 403}[may] {
		t.Errorf("from %q to %q, %v: %d %s", r.RemoteAddr, r.Host, r.Header, w.Code, w.Body)
	}
}

// A request through a Unix socket is local, unless a proxy has forwarded it.
func TestAccessByUnixSocket(t *testing.T) {
	page := debug.New()
	defer page.Close()
	for _, c := range []struct {
		from, header string
		may          bool
	}{
		{"@", "", true}, {"", "", true}, {"@name", "", true}, {"/run/client", "", true}, {"127.0.0.1:9", "", true},
		{"203.0.113.7", "", false}, {"203.0.113.7:9", "", false}, {"@", "X-Forwarded-For", false},
	} {
		r := request("GET", "/ports")
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.UnixAddr{Name: "/run/server", Net: "unix"}))
		r.RemoteAddr = c.from
		if c.header != "" {
			r.Header.Set(c.header, "203.0.113.7")
		}
		checkAccess(t, page, r, c.may)
	}
}

// Requests through a local httputil.ReverseProxy are refused.
func TestAccessByProxy(t *testing.T) {
	_, to := serve(t, debug.Port("p", newPort[int](t)))
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: target.Host}))
	defer proxy.Close()
	if f := get[debugdata.Failure](t, proxy.URL+target.Path+"ports", 403); !strings.Contains(f.Error, "proxy") {
		t.Error(f.Error)
	}
}

// Every kind of internal/kernel/port is accepted by the trace view and offered on the page.
func TestTraceKinds(t *testing.T) {
	_, url := serve(t, debug.Port("p", newPort[int](t)))
	said := get[debugdata.Failure](t, url+"trace?kind=x", 400).Error
	text, err := io.ReadAll(open(t, url).Body)
	must(t, err)
	kinds := 0
	for k := debug.TraceKind(0); k.String() != strconv.Itoa(int(k)); k++ {
		if !strings.Contains(said, k.String()) || !strings.Contains(string(text), "<option>"+k.String()+"</option>") {
			t.Errorf("no kind %v in %q, or on the page", k, said)
		}
		kinds++
	}
	if kinds < 7 {
		t.Errorf("only %d kinds", kinds)
	}
}

// The first sample may be taken concurrently with the end of New.
func TestSampleDuringNew(t *testing.T) {
	t.Parallel() // it waits
	page := debug.New(debug.Port("p", newPort[int](t)))
	time.Sleep(1200 * time.Millisecond) // past the first sample; any synchronization would hide a data race
	page.Close()
}
