package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/webhook"
	"github.com/socknotify/socknotify/internal/test/words"
)

var hookSecret = []byte("a secret of the webhooks, 32 by.")

// A backend answers webhooks, and keeps what it was asked.
type backend struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex
	asked  []string                             // path, transport, user, channel and data
	answer map[string]func(http.ResponseWriter) // by path; otherwise it allows
	ids    map[string]bool
}

// newBackend starts a backend, and returns it and a configuration that asks it everything.
func newBackend(t *testing.T) (*backend, Webhooks) {
	t.Helper()
	b := &backend{t: t, answer: make(map[string]func(http.ResponseWriter)), ids: make(map[string]bool)}
	b.Server = httptest.NewServer(b)
	b.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(b.Close)
	return b, Webhooks{Connect: b.URL + "/connect", Subscribe: b.URL + "/subscribe",
		Publish: b.URL + "/publish", Disconnect: b.URL + "/disconnect",
		Secret: hookSecret, Private: true, Timeout: time.Minute}
}

// signature returns that of Standard Webhooks for a request.
func signature(id, at string, body []byte) string {
	mac := hmac.New(sha256.New, hookSecret)
	fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var q webhook.Request
	if err == nil {
		err = json.Unmarshal(body, &q)
	}
	id, at := r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp")
	seconds, _ := strconv.ParseInt(at, 10, 64)
	signed := r.Header.Get("Webhook-Signature") == "v1,"+signature(id, at, body)
	late := time.Since(time.Unix(seconds, 0)).Abs() > 5*time.Minute
	if err != nil || !signed || late || r.Method != "POST" || q.Protocol != "json" ||
		q.Encoding != "json" || r.Header.Get("Content-Type") != "application/json" {
		b.t.Errorf("%s %s, signed: %v, at %s: %s", r.Method, r.URL, signed, at, body)
	}
	data := ""
	if q.Data != nil {
		data = *q.Data
	}
	b.mu.Lock()
	if b.ids[id] || id == "" {
		b.t.Errorf("the id %q comes twice", id)
	}
	b.ids[id] = true
	asked := strings.Join([]string{r.URL.Path, q.Transport, q.User, q.Channel, data}, " ")
	b.asked = append(b.asked, strings.TrimSpace(asked))
	answer := b.answer[r.URL.Path]
	b.mu.Unlock()
	if answer == nil {
		io.WriteString(w, `{"result":{}}`)
		return
	}
	answer(w)
}

// says makes the backend answer requests to a path with a text.
func (b *backend) says(path, text string) {
	b.does(path, func(w http.ResponseWriter) { io.WriteString(w, text) })
}

func (b *backend) does(path string, f func(http.ResponseWriter)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer[path] = f
}

// was returns what the backend was asked since the last call, in the order of the alphabet.
func (b *backend) was() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked := b.asked
	b.asked = nil
	slices.Sort(asked)
	return asked
}

func (b *backend) expect(want ...string) {
	b.t.Helper()
	slices.Sort(want)
	if got := b.was(); !slices.Equal(got, want) {
		b.t.Errorf("the backend was asked %q, want %q", got, want)
	}
}

// The backend is asked for each client, topic and event, signed, and told when a client has gone.
// It may say who a client is.
func TestWebhooks(t *testing.T) {
	b, hooks := newBackend(t)
	s := newSite(t, t.TempDir(), Config{Webhooks: hooks, Presence: []string{"a"}})
	b.says("/connect", `{"result":{"user":"56"}}`)
	sse, err := openSSE(s.url, "topic=a&topic=b.*", "")
	must(t, err)
	defer sse.close()
	b.expect("/connect sse", "/subscribe sse 56 a", "/subscribe sse 56 b.*")
	until(t, "56 is present", func() bool { return slices.Equal(s.present("a"), []string{"56"}) })
	socket, err := openWS(s.url, "")
	must(t, err)
	b.expect("/connect websocket")
	if a := socket.ask(t, 1, "a", "hello", ""); a.Published == nil {
		t.Errorf("%+v", a)
	}
	expect(t, sse, message{Data: "hello"})
	b.expect("/publish websocket 56 a hello")
	if status, body := s.request("POST", "/publish?topic=a", "posted"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	b.expect("/publish http  a posted")
	if status, _ := s.request("GET", "/poll?topic=a&last=1", ""); status != 200 {
		t.Error(status)
	}
	b.expect("/connect poll", "/subscribe poll 56 a")
	socket.close()
	until(t, "the backend is told", func() bool {
		return slices.Contains(b.was(), "/disconnect websocket 56")
	})
	s.publish("a", "by the program") // which is not a client
	expect(t, sse, message{Data: "posted"})
	expect(t, sse, message{Data: "by the program"})
	b.expect()
	if st := s.Stats(); st.Hooks != 9 || st.HookFailures != 0 {
		t.Errorf("%d were counted, %d failures", st.Hooks, st.HookFailures)
	}
}

// The backend denies a client, one of its topics, or an event, and ends a client's time.
func TestWebhooksDeny(t *testing.T) {
	b, hooks := newBackend(t)
	s := newSite(t, t.TempDir(), Config{Webhooks: hooks})
	for _, c := range []struct{ answer, text string }{
		{`{"error":{"code":403,"message":"not you"}}`, "not you"},
		{`{"error":{"code":1000}}`, "not allowed"},
		{`{"disconnect":{"code":4501,"reason":"banned"}}`, "banned"},
	} {
		for _, path := range []string{"/connect", "/subscribe", "/publish"} {
			b.says(path, c.answer)
			method, request := "GET", "/poll?topic=x&last=1"
			if path == "/publish" {
				method, request = "POST", "/publish?topic=x"
			}
			status, body := s.request(method, request, "data")
			if status != http.StatusForbidden || !strings.Contains(body, c.text) {
				t.Errorf("%s %s: %d %s", path, c.answer, status, body)
			}
			if named := strings.HasPrefix(body, `topic "x": `); named != (path != "/connect") {
				t.Errorf("%s: %s", path, body)
			}
			b.says(path, `{"result":{}}`)
		}
	}
	socket, err := openWS(s.url, "topic=x")
	must(t, err)
	b.says("/publish", `{"error":{"message":"no"}}`)
	a := socket.ask(t, 1, "x", "data", "")
	if a.Error == nil || a.Error.Status != 403 || a.Error.Text != `topic "x": no` {
		t.Errorf("%+v", a)
	}
	socket.close()
	if n := s.Stats().Denied; n != 10 {
		t.Errorf("%d were counted", n)
	}
	b.says("/connect", fmt.Sprintf(`{"result":{"expire_at":%d}}`, time.Now().Unix()+1))
	socket, err = openWS(s.url, "topic=x")
	must(t, err)
	defer socket.close()
	if _, err := socket.read(); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("got %v", err)
	}
}

// An answer that is too long, redirected or malformed is none. Then clients get 503, or with
// AllowFailed what they want.
func TestWebhookFailures(t *testing.T) {
	b, hooks := newBackend(t)
	s := newSite(t, t.TempDir(), Config{Webhooks: hooks})
	hooks.AllowFailed = true
	open := newSiteOn(t, s.node, Config{Webhooks: hooks})
	text := func(s string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { io.WriteString(w, s) }
	}
	status := func(code int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Location", b.URL+"/other")
			w.WriteHeader(code)
			io.WriteString(w, `{"result":{}}`)
		}
	}
	n := uint64(0)
	for name, f := range map[string]func(http.ResponseWriter){
		"giant": text(strings.Repeat(" ", 64<<10) + `{"result":{}}`),
		"giant header": func(w http.ResponseWriter) {
			w.Header().Set("X", strings.Repeat("x", 128<<10))
			io.WriteString(w, `{"result":{}}`)
		},
		"redirect": status(http.StatusTemporaryRedirect),
		"error":    status(http.StatusInternalServerError),
		"created":  status(http.StatusCreated),
		"no JSON":  text("yes"),
		"empty":    text(""),
		"nothing":  text("{}"),
		"null":     text(`{"result":null}`),
		"both":     text(`{"result":{},"error":{"code":403}}`),
		"abort":    func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		for _, path := range []string{"/connect", "/subscribe", "/publish"} {
			b.does(path, f)
			method, request := "GET", "/poll?topic=x&last=1"
			if path == "/publish" {
				method, request = "POST", "/publish?topic=x"
			}
			if status, body := s.request(method, request, "data"); status != 503 {
				t.Errorf("%s, %s: %d %s", path, name, status, body)
			}
			if n++; s.Stats().HookFailures != n {
				t.Errorf("%s, %s: %d were counted, want %d", path, name, s.Stats().HookFailures, n)
			}
			if status, body := open.request(method, request, "data"); status != 200 {
				t.Errorf("%s, %s: with AllowFailed %d %s", path, name, status, body)
			}
			b.says(path, `{"result":{}}`)
		}
	}
	for _, asked := range b.was() {
		if strings.HasPrefix(asked, "/other") {
			t.Error("a redirect was followed")
		}
	}
}

// A backend that does not answer in time keeps a client no longer than that.
func TestSilentWebhooks(t *testing.T) {
	b, all := newBackend(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	b.does("/publish", func(http.ResponseWriter) { <-release })
	b.does("/connect", func(w http.ResponseWriter) {
		io.WriteString(w, `{"result":`)
		w.(http.Flusher).Flush()
		<-release
	})
	hooks := Webhooks{Publish: all.Publish, Secret: hookSecret, Private: true, Timeout: 50 * time.Millisecond}
	s := newSite(t, t.TempDir(), Config{Webhooks: hooks})
	if status, body := s.request("POST", "/publish?topic=x", "data"); status != 503 {
		t.Errorf("%d %s", status, body)
	}
	socket, err := openWS(s.url, "")
	must(t, err)
	defer socket.close()
	a := socket.ask(t, 1, "x", "data", "")
	if a.Error == nil || a.Error.Status != 503 || a.Error.Retry == 0 {
		t.Errorf("%+v", a)
	}
	hooks.AllowFailed = true
	open := newSiteOn(t, s.node, Config{Webhooks: hooks})
	if status, body := open.request("POST", "/publish?topic=x", "data"); status != 200 {
		t.Errorf("with AllowFailed: %d %s", status, body)
	}
	hooks = Webhooks{Connect: all.Connect, Secret: hookSecret, Private: true, Timeout: 50 * time.Millisecond}
	slow := newSiteOn(t, s.node, Config{Webhooks: hooks})
	if status, body := slow.request("GET", "/poll?topic=x&last=1", ""); status != 503 {
		t.Errorf("half an answer: %d %s", status, body)
	}
}

// A backend at a private address is not asked unless that is allowed, and one that stops does not
// keep the gateway from ending.
func TestWebhookBounds(t *testing.T) {
	b, hooks := newBackend(t)
	node := newNode(t, NodeConfig{Store: t.TempDir()})
	for name, c := range map[string]Webhooks{
		"http":       {Connect: "http://example.org/", Secret: hookSecret},
		"no host":    {Publish: "https://", Secret: hookSecret, Private: true},
		"no scheme":  {Subscribe: "example.org", Secret: hookSecret, Private: true},
		"no address": {Disconnect: ":", Secret: hookSecret, Private: true},
		"secret":     {Connect: "https://example.org/", Secret: hookSecret[:23]},
	} {
		t.Log(name)
		words.Invalid(t, "Webhooks", (&Config{Conn: node.Conn, Webhooks: c}).prepare())
	}
	private := hooks
	private.Private = false
	private.Connect = strings.Replace(b.URL, "http://", "https://", 1)
	private.Subscribe, private.Publish, private.Disconnect = "", "", ""
	s := newSiteOn(t, node, Config{Webhooks: private})
	if status, _ := s.request("GET", "/poll?topic=x&last=1", ""); status != 503 {
		t.Errorf("a private address: %d", status)
	}
	b.expect()
	hooks.Connect, hooks.Subscribe, hooks.Publish = "", "", ""
	hooks.Timeout = 50 * time.Millisecond
	s = newSiteOn(t, node, Config{Webhooks: hooks})
	var all []*wsReader
	for range 20 {
		r, err := openWS(s.url, "")
		must(t, err)
		all = append(all, r)
	}
	release := make(chan struct{})
	defer close(release)
	b.does("/disconnect", func(http.ResponseWriter) { <-release })
	for _, r := range all {
		r.close()
	}
	until(t, "they are gone", func() bool { return s.Stats().Conns == 0 })
	must(t, s.Shutdown(t.Context())) // after one timeout, and not after that of each
}
