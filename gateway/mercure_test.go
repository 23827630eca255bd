package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/mercure"
)

// mercureTestConfig is that of most tests.
func mercureTestConfig() Config {
	return Config{Authorize: JWT("HS256", secret), Heartbeat: -1,
		Mercure: &MercureConfig{Anonymous: true, Subscriptions: true}}
}

// mercureTestToken returns a token with the claim "mercure", that does not expire if d is 0.
func mercureTestToken(t *testing.T, d time.Duration, publish, subscribe []string) string {
	t.Helper()
	c := jwt.MapClaims{"sub": "alice", "mercure": map[string]any{"publish": publish,
		"subscribe": subscribe, "payload": map[string]string{"name": "Alice"}}}
	if d != 0 {
		c["exp"] = time.Now().Add(d).Unix()
	}
	return must1(jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString(secret))
}

// A mercureReader is a client of Mercure. Its blocks are those of sseReader.
type mercureReader struct{ sseReader }

// openMercure subscribes. header has names and values.
func openMercure(address, query string, header ...string) (*mercureReader, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(conn, "GET /.well-known/mercure?%s HTTP/1.1\r\nHost: localhost\r\n", query)
	for i := 0; i < len(header); i += 2 {
		fmt.Fprintf(conn, "%s: %s\r\n", header[i], header[i+1])
	}
	io.WriteString(conn, "\r\n")
	in := bufio.NewReader(conn)
	conn.SetReadDeadline(time.Now().Add(readTimeout))
	answer, err := http.ReadResponse(in, nil)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &mercureReader{sseReader: sseReader{conn: conn, in: in, header: answer.Header}}, nil
}

// mercureSite is a site with clients of Mercure.
type mercureSite struct{ *site }

func (s mercureSite) open(query string, header ...string) *mercureReader {
	s.t.Helper()
	r, err := openMercure(s.url, query, header...)
	must(s.t, err)
	s.t.Cleanup(r.close)
	return r
}

// joined waits until so many clients of Mercure have joined.
func (s mercureSite) joined(n int) {
	s.t.Helper()
	until(s.t, "the clients have joined", func() bool {
		f := s.hub.Feed(event.MercureTopic)
		if f == nil {
			return n == 0
		}
		joined, _, _ := f.State()
		return joined == n
	})
}

// post publishes a form and returns the status and the id.
func (s mercureSite) post(token string, form url.Values, header ...string) (int, string) {
	s.t.Helper()
	header = append(header, "Content-Type", "application/x-www-form-urlencoded")
	if token != "" {
		header = append(header, "Authorization", "Bearer "+token)
	}
	return s.request("POST", mercure.Path, form.Encode(), header...)
}

// update publishes an update, which must be taken.
func (s mercureSite) update(token, topic, data string, more ...string) string {
	s.t.Helper()
	form := url.Values{"topic": {topic}, "data": {data}}
	for i := 0; i < len(more); i += 2 {
		form.Add(more[i], more[i+1])
	}
	status, id := s.post(token, form)
	if status != http.StatusOK {
		s.t.Fatalf("publishing gets %d %s", status, id)
	}
	return id
}

func (r *mercureReader) want(t *testing.T, want message) {
	t.Helper()
	got, err := r.next()
	must(t, err)
	if got.Data != want.Data || got.name != want.name || want.ID != "" && got.ID != want.ID {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func query(topics ...string) string { return url.Values{"topic": topics}.Encode() }

// Updates come to those who want them, in order, and private ones to those who may read them.
func TestMercure(t *testing.T) {
	s := mercureSite{newSite(t, t.TempDir(), mercureTestConfig())}
	all := mercureTestToken(t, 0, []string{"*"}, []string{"*"})
	book := mercureTestToken(t, time.Hour, nil, []string{"https://a.example/users/1{/more}"})
	anyone := s.open(query("https://a.example/books/{id}"))
	reader := s.open(query("https://a.example/books/{id}"), "Authorization", "Bearer "+book)
	everything := s.open(query("*")+"&authorization="+all, "Cookie", "mercureAuthorization=wrong")
	cookie := s.open(query("https://a.example/users/1/x"), "Cookie", "mercureAuthorization="+book)
	s.joined(4)
	first := s.update(all, "https://a.example/books/1", "one")
	s.update(all, "https://a.example/books/1/pages", "other")
	s.update(all, "https://a.example/books/2", "hidden", "private", "")
	s.update(all, "https://a.example/books/2", "shared", "private", "on", "topic",
		"https://a.example/users/1/x")
	s.update(all, "https://a.example/books/3", "two\r\nlines", "type", "new", "id", "urn:x", "retry", "12")
	anyone.want(t, message{Data: "one", ID: first})
	anyone.want(t, message{Data: "two\nlines", ID: "urn:x", name: "new"})
	reader.want(t, message{Data: "one"})
	reader.want(t, message{Data: "shared"})
	reader.want(t, message{Data: "two\nlines", name: "new"})
	cookie.want(t, message{Data: "shared"})
	for _, want := range []string{"one", "other", "hidden"} {
		m, err := everything.next()
		// The event of a subscription is published after its client has joined.
		for err == nil && strings.Contains(m.Data, `"Subscription"`) {
			m, err = everything.next()
		}
		must(t, err)
		if m.Data != want {
			t.Fatalf("got %+v, want %q", m, want)
		}
	}
	if got := anyone.header.Get("Link"); got != `</.well-known/mercure>; rel="mercure"` {
		t.Errorf("the link is %q", got)
	}
	if got := everything.header.Get("Cache-Control"); !strings.Contains(got, "private") {
		t.Errorf("with a token in the URL, Cache-Control is %q", got)
	}
}

// An id resumes after a restart: one of the gateway's own, and one that the publisher has chosen.
// The answer has the id before the first update.
func TestMercureResume(t *testing.T) {
	folder := t.TempDir()
	all := mercureTestToken(t, 0, []string{"*"}, []string{"*"})
	var own, second string
	t.Run("before", func(t *testing.T) {
		s := mercureSite{newSite(t, folder, mercureTestConfig())}
		own = s.update(all, "a", "1")
		second = s.update(all, "a", "2", "id", "urn:2", "private", "on")
		s.update(all, "b", "3")
		s.update(all, "a", "4")
		if second != "urn:2" {
			t.Fatalf("the id is %q", second)
		}
	})
	s := mercureSite{newSite(t, folder, mercureTestConfig())}
	for _, c := range []struct {
		last, answered string
		want           []string
	}{
		{own, own, []string{"2", "4"}},
		{second, second, []string{"4"}},
		{"earliest", "earliest", []string{"1", "2", "4"}},
		{"urn:unknown", "earliest", []string{"1", "2", "4"}},
		{"#00000000-1", "earliest", []string{"1", "2", "4"}},
		{"#first", "earliest", []string{"1", "2", "4"}},
		{"#" + s.hub.Epoch + "-1.2", "earliest", []string{"1", "2", "4"}},
	} {
		q := query("a") + "&lastEventID=" + url.QueryEscape(c.last)
		byQuery := s.open(q, "Authorization", "Bearer "+all)
		byHeader := s.open(query("a")+"&lastEventID=wrong", "Authorization", "Bearer "+all,
			"Last-Event-ID", c.last)
		byOld := s.open(query("a")+"&Last-Event-ID="+url.QueryEscape(c.last), "Authorization", "Bearer "+all)
		byBoth := s.open(q+"&Last-Event-ID=wrong", "Authorization", "Bearer "+all)
		for _, r := range []*mercureReader{byQuery, byHeader, byOld, byBoth} {
			if got := r.header.Get("Last-Event-ID"); got != c.answered {
				t.Errorf("%s: the answer has the id %q, want %q", c.last, got, c.answered)
			}
			for _, data := range c.want {
				r.want(t, message{Data: data})
			}
			r.close()
		}
	}
}

// A browser whose topics are quiet is told its position. Other clients, which may give each block to
// the program, get no block without data.
func TestMercurePosition(t *testing.T) {
	c := mercureTestConfig()
	c.Heartbeat = 20 * time.Millisecond
	c.Mercure.Subscriptions = false
	s := mercureSite{newSite(t, t.TempDir(), c)}
	all := mercureTestToken(t, 0, []string{"*"}, nil)
	const browser = "Mozilla/5.0 (X11; Linux x86_64)"
	r := s.open(query("a"), "User-Agent", browser)
	s.joined(1)
	last := s.update(all, "b", "1")
	for id := ""; id != "id: "+last; {
		line, err := r.in.ReadString('\n')
		must(t, err)
		id = strings.TrimSpace(line)
	}
	for i, header := range [][]string{
		{"User-Agent", browser, "Authorization", "Bearer " + all}, // a page that uses fetch
		{"User-Agent", "Symfony HttpClient (Curl)", "Cookie", MercureCookie + "=" + all},
		{"User-Agent", "node"},
		{},
	} {
		h := s.open(query("a"), header...)
		s.joined(2 + i)
		s.update(all, "b", "2")
		for beats := 0; beats < 3; {
			line, err := h.in.ReadString('\n')
			must(t, err)
			if line == "\n" {
				t.Fatalf("%q: a block without data has ended", header)
			}
			if line == ":\n" {
				beats++
			}
		}
		s.update(all, "a", "3", "id", "urn:3")
		h.want(t, message{Data: "3", ID: "urn:3"})
		for line := ""; line != ":\n"; {
			var err error
			line, err = h.in.ReadString('\n')
			must(t, err)
			if line == "\n" {
				t.Fatalf("%q: after an update, a block without data has ended", header)
			}
		}
	}
}

// What has left the stream is told by the answer's id.
func TestMercureGap(t *testing.T) {
	c := mercureTestConfig()
	c.Stream.MaxBytes = 20 << 10
	s := mercureSite{newSite(t, t.TempDir(), c)}
	all := mercureTestToken(t, 0, []string{"*"}, nil)
	first := s.update(all, "a", "first")
	last := ""
	for range 30 {
		last = s.update(all, "a", strings.Repeat("x", 2<<10))
	}
	r := s.open(query("a"), "Last-Event-ID", first)
	if got := r.header.Get("Last-Event-ID"); got == first || got == "earliest" {
		t.Errorf("the answer has the id %q", got)
	}
	for {
		m, err := r.next()
		must(t, err)
		if m.ID == last {
			break
		}
	}
}

// An id of one node resumes on another one, and the subscriptions are those of all nodes.
func TestMercureNodes(t *testing.T) {
	node := newNode(t, NodeConfig{Store: t.TempDir(), Listen: freeAddr(t)})
	one := mercureSite{newSiteOn(t, node, mercureTestConfig())}
	two := mercureSite{newSiteOn(t, node, mercureTestConfig())}
	all := mercureTestToken(t, 0, []string{"*"}, []string{"*"})
	r := two.open(query("a"), "Authorization", "Bearer "+all)
	two.joined(1)
	id := one.update(all, "a", "1")
	r.want(t, message{Data: "1", ID: id})
	r.close()
	two.joined(0)
	two.update(all, "a", "2")
	r = one.open(query("a"), "Last-Event-ID", id)
	r.want(t, message{Data: "2"})
	two.open(query("b", "c{d}"), "Authorization", "Bearer "+all)
	two.joined(1)
	watcher := []string{"Authorization", "Bearer " + all}
	var got struct {
		Type, LastEventID string
		Subscriptions     []subscriptionMessage
	}
	ask := func(path string) int {
		status, body := one.request("GET", mercure.Path+"/subscriptions"+path, "", watcher...)
		got.Subscriptions = nil
		if status == http.StatusOK {
			must(t, json.Unmarshal([]byte(body), &got))
		}
		return status
	}
	until(t, "both nodes answer", func() bool { return ask("") == 200 && len(got.Subscriptions) == 3 })
	if got.Type != "Subscriptions" || got.LastEventID[0] != '#' {
		t.Errorf("got %+v", got)
	}
	if ask("/c%7Bd%7D"); len(got.Subscriptions) != 1 || !got.Subscriptions[0].Active ||
		string(got.Subscriptions[0].Payload) != `{"name":"Alice"}` {
		t.Fatalf("got %+v", got.Subscriptions)
	}
	path := strings.TrimPrefix(got.Subscriptions[0].ID, mercure.Path+"/subscriptions")
	if status := ask(path); status != 200 {
		t.Errorf("one subscription gets %d", status)
	}
	if status := ask("/b/urn%3Auuid%3Anone"); status != 404 {
		t.Errorf("one that is not there gets %d", status)
	}
	watcher = []string{"Authorization", "Bearer " + mercureTestToken(t, 0, nil,
		[]string{mercure.Path + "/subscriptions/b{/s}"})}
	if a, b := ask(""), ask("/b"); a != 403 || b != 200 {
		t.Errorf("a token for one topic gets %d for all and %d for it", a, b)
	}
	if watcher = nil; ask("") != 401 {
		t.Error("the subscriptions need no token")
	}
}

// Subscriptions are published, as private updates, to those who may read them.
func TestMercureSubscriptionEvents(t *testing.T) {
	s := mercureSite{newSite(t, t.TempDir(), mercureTestConfig())}
	template := mercure.Path + "/subscriptions{/topic}{/subscriber}"
	may := mercureTestToken(t, 0, nil, []string{template})
	watcher := s.open(query(template), "Authorization", "Bearer "+may)
	s.open(query(template)) // gets none
	s.joined(2)
	r := s.open(query("x/y"), "Authorization", "Bearer "+may)
	s.joined(3)
	r.close()
	var states []bool
	for len(states) < 2 {
		m, err := watcher.next()
		must(t, err)
		var d subscriptionMessage
		must(t, json.Unmarshal([]byte(m.Data), &d))
		if d.Topic == "x/y" {
			states = append(states, d.Active)
			if !strings.HasPrefix(d.ID, mercure.Path+"/subscriptions/x%2Fy/urn%3Auuid%3A") || d.Type != "Subscription" {
				t.Errorf("got %+v", d)
			}
		}
	}
	if !slices.Equal(states, []bool{true, false}) {
		t.Errorf("the states are %v", states)
	}
}

// Tokens that are not signed as configured, forms that would forge fields, and topics that would be
// more than a name are refused.
func TestMercureAttacks(t *testing.T) {
	c := mercureTestConfig()
	c.Origins = []string{"https://listed.example"}
	c.MaxMessage = 4 << 10
	s := mercureSite{newSite(t, t.TempDir(), c)}
	all := mercureTestToken(t, 0, []string{"*"}, []string{"*"})
	claims := jwt.MapClaims{"mercure": map[string]any{"publish": []string{"*"}, "subscribe": []string{"*"}}}
	forge := func(method jwt.SigningMethod, key any, header ...string) string {
		x := jwt.NewWithClaims(method, claims)
		for i := 0; i < len(header); i += 2 {
			x.Header[header[i]] = header[i+1]
		}
		return must1(x.SignedString(key))
	}
	for name, token := range map[string]string{
		"none":         forge(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType),
		"HS384":        forge(jwt.SigningMethodHS384, secret),
		"other secret": forge(jwt.SigningMethodHS256, []byte("another")),
		"jku":          forge(jwt.SigningMethodHS256, []byte("another"), "jku", "https://evil.example"),
		"crit":         forge(jwt.SigningMethodHS256, secret, "crit", "x"),
		"expired":      mercureTestToken(t, -time.Minute, []string{"*"}, []string{"*"}),
		"no token":     "",
		"selector":     mercureTestToken(t, 0, []string{"*", "a\nb"}, nil),
	} {
		status, _ := s.post(token, url.Values{"topic": {"a"}})
		if status != 401 {
			t.Errorf("%s: publishing gets %d", name, status)
		}
		if token != "" {
			if _, err := openMercure(s.url, query("a"), "Authorization", "Bearer "+token); err == nil {
				t.Errorf("%s: it may subscribe", name)
			}
		}
	}
	push := token(t, jwt.SigningMethodHS256, secret, time.Minute, []string{">"}, []string{">"})
	narrow := mercureTestToken(t, 0, []string{"https://a.example/{id}"}, nil)
	for _, c := range []struct {
		token  string
		form   url.Values
		status int
	}{
		{push, url.Values{"topic": {"a"}}, 403},
		{narrow, url.Values{"topic": {"https://a.example/1"}}, 200},
		{narrow, url.Values{"topic": {"https://a.example/1", "a"}}, 403},
		{narrow, url.Values{"topic": {"https://a.example/1/2"}}, 403},
		{all, url.Values{"data": {"a"}}, 400},
		{all, url.Values{"topic": {"a\nb"}}, 400},
		{all, url.Values{"topic": {"a\x00b"}}, 400},
		{all, url.Values{"topic": {"a\u0085b"}}, 400},
		{all, url.Values{"topic": {"\xff"}}, 400},
		{all, url.Values{"topic": {""}}, 400},
		{all, url.Values{"topic": {"*"}}, 400},
		{all, url.Values{"topic": {strings.Repeat("a", 1025)}}, 400},
		{all, url.Values{"topic": slices.Repeat([]string{"a"}, 65)}, 400},
		{all, url.Values{"topic": {"/.well-known/mercure/subscriptions/a/b"}}, 400},
		{all, url.Values{"topic": {"a", "https://x.example/.well-known/%6Dercure/../mercure"}}, 400},
		{all, url.Values{"topic": {`https:\\x.example\.well-known\mercure`}}, 400},
		{all, url.Values{"topic": {"a"}, "data": {"\xff"}}, 400},
		{all, url.Values{"topic": {"a"}, "id": {"x\ndata: forged"}}, 400},
		{all, url.Values{"topic": {"a"}, "id": {"x\x00"}}, 400},
		{all, url.Values{"topic": {"a"}, "id": {"#" + s.hub.Epoch + "-99"}}, 400},
		{all, url.Values{"topic": {"a"}, "id": {"earliest"}}, 400},
		{all, url.Values{"topic": {"a"}, "type": {"x\rdata: forged"}}, 400},
		{all, url.Values{"topic": {"a"}, "retry": {"1\ndata: forged"}}, 400},
		{all, url.Values{"topic": {"a"}, "retry": {"-1"}}, 400},
		{all, url.Values{"topic": {"a"}, "retry": {"99999999999"}}, 400},
		{all, url.Values{"topic": {"a"}, "data": {strings.Repeat("a", 4<<10)}}, 413},
		{all, url.Values{"topic": {"a"}, "data": {strings.Repeat("a", 40<<10)}}, 413},
	} {
		if status, body := s.post(c.token, c.form); status != c.status {
			t.Errorf("%.60q gets %d %s, want %d", c.form, status, body, c.status)
		}
	}
	// No topic of a client is a subject of NATS.
	for _, topic := range []string{">", "a.>", "push.d.x", "$control", "..", "a b", "live.x"} {
		if status, body := s.post(all, url.Values{"topic": {topic}}); status != 200 {
			t.Errorf("topic %q gets %d %s", topic, status, body)
		}
	}
	if n := s.Topics(100); len(n) != 0 {
		t.Errorf("there are topics of the gateway: %v", n)
	}
	if status, _ := s.request("POST", mercure.Path, "topic=a", "Authorization", "Bearer "+all,
		"Content-Type", "multipart/form-data; boundary=x"); status != 415 {
		t.Errorf("another kind of form gets %d", status)
	}
	// A page publishes with a cookie from a listed origin alone.
	for origin, status := range map[string]int{"https://evil.example": 403, "https://listed.example": 200, "": 403} {
		header := []string{"Cookie", "mercureAuthorization=" + all}
		if origin != "" {
			header = append(header, "Origin", origin)
		}
		if got, _ := s.post("", url.Values{"topic": {"a"}}, header...); got != status {
			t.Errorf("a page of %q gets %d, want %d", origin, got, status)
		}
	}
	foreign := s.open(query("a"), "Origin", "https://evil.example", "Cookie", "mercureAuthorization="+all)
	if got := foreign.header.Get("Access-Control-Allow-Origin"); got != "" {
		t.Errorf("a page of another origin may read: %q", got)
	}
	listed := s.open(query("a"), "Origin", "https://listed.example")
	if h := listed.header; h.Get("Access-Control-Allow-Credentials") != "true" ||
		!strings.Contains(h.Get("Access-Control-Expose-Headers"), "Last-Event-ID") {
		t.Errorf("a page of a listed origin gets %v", h)
	}
	for _, q := range []string{"", "topic=", "topic=a%0Ab", "topic=a%", "topic=a&lastEventID=x%0Ay", query(strings.Repeat("{a}", 33))} {
		if r, err := openMercure(s.url, q); err == nil {
			r.close()
			t.Errorf("the query %q is taken", q)
		}
	}
	// A header that is no token does not fall back to a cookie.
	if r, err := openMercure(s.url, query("x"), "Authorization", "Basic eDp5", "Cookie", "mercureAuthorization="+all); err == nil {
		s.joined(3)
		s.update(all, "x", "private", "private", "on")
		s.update(all, "x", "public")
		r.want(t, message{Data: "public"})
		r.close()
	} else {
		t.Error(err)
	}
	// Clients of the gateway's own ways get no update.
	if status, _ := s.request("GET", "/poll?topic=$mercure&after=first", "", "Authorization", "Bearer "+push); status != 400 {
		t.Errorf("the topic of all updates gets %d", status)
	}
	if _, body := s.request("GET", "/poll?topic=>&after=first&last=1", "", "Authorization", "Bearer "+push); strings.Contains(body, "topics") {
		t.Errorf("a wildcard gets %s", body)
	}
}

// A token's end, and an order to disconnect, end the connection.
func TestMercureEnds(t *testing.T) {
	s := mercureSite{newSite(t, t.TempDir(), mercureTestConfig())}
	short := s.open(query("a"), "Authorization", "Bearer "+mercureTestToken(t, 2*time.Second, nil, nil))
	if _, err := io.Copy(io.Discard, short.in); err != nil && !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	kicked := s.open(query("a"), "Authorization", "Bearer "+mercureTestToken(t, 0, nil, nil))
	s.joined(1)
	if _, err := s.publisher.Store(context.Background(), event.ControlTopic, []byte(`{"user":"alice"}`), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, kicked.in); err != nil {
		t.Error(err)
	}
}

// A backend is asked what clients of Mercure may do, and told when they have gone. One that gives no
// answer refuses them for a time, and an EventSource comes back.
func TestMercureWebhooks(t *testing.T) {
	b, hooks := newBackend(t)
	c := mercureTestConfig()
	c.Webhooks, c.Mercure.Subscriptions = hooks, false
	s := mercureSite{newSite(t, t.TempDir(), c)}
	all := mercureTestToken(t, 0, []string{"*"}, []string{"*"})
	allow := func() { b.says("/connect", `{"result":{"user":"56"}}`) }
	allow()
	r := s.open(query("a", "b{c}"), "Authorization", "Bearer "+all)
	b.expect("/connect sse alice", "/subscribe sse 56 a", "/subscribe sse 56 b{c}")
	s.joined(1)
	if status, body := s.post(all, url.Values{"topic": {"a", "d"}, "data": {"x"}}); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	b.expect("/publish http alice a x", "/publish http alice d x")
	r.want(t, message{Data: "x"})
	r.close()
	until(t, "the backend is told", func() bool {
		return slices.Contains(b.was(), "/disconnect sse 56")
	})
	get := []string{"Authorization", "Bearer " + all}
	browser := append([]string{"Accept", "text/event-stream"}, get...)
	for answer, want := range map[string]int{`{"error":{"code":403}}`: 403, `no JSON`: 503} {
		for _, path := range []string{"/connect", "/subscribe"} {
			b.says(path, answer)
			if status, body := s.request("GET", mercure.Path+"?topic=a", "", get...); status != want {
				t.Errorf("%s says %s: %d %s", path, answer, status, body)
			}
			status, body := s.request("GET", mercure.Path+"?topic=a", "", browser...)
			if back := status == 200 && strings.Contains(body, "retry: "); back != (want == 503) {
				t.Errorf("%s says %s: an EventSource gets %d %s", path, answer, status, body)
			}
			allow()
			b.says("/subscribe", `{"result":{}}`)
		}
		b.says("/publish", answer)
		if status, body := s.post(all, url.Values{"topic": {"a"}}); status != want {
			t.Errorf("/publish says %s: %d %s", answer, status, body)
		}
		b.says("/publish", `{"result":{}}`)
	}
	b.says("/connect", fmt.Sprintf(`{"result":{"expire_at":%d}}`, time.Now().Unix()+1))
	ended := s.open(query("a"), get...)
	if _, err := io.Copy(io.Discard, ended.in); err != nil {
		t.Errorf("after its time: %v", err)
	}
}

// Drain ends the connections of Mercure's clients, which go on at another node with their ids, and
// publishes the ends of their subscriptions.
func TestMercureDrain(t *testing.T) {
	node := newNode(t, NodeConfig{Store: t.TempDir()})
	one := mercureSite{newSiteOn(t, node, mercureTestConfig())}
	two := mercureSite{newSiteOn(t, node, mercureTestConfig())}
	all := mercureTestToken(t, 0, []string{"*"}, []string{"*"})
	template := mercure.Path + "/subscriptions{/topic}{/subscriber}"
	watcher := two.open(query(template), "Authorization", "Bearer "+all)
	two.joined(1)
	const clients = 5
	var readers []*mercureReader
	for range clients {
		readers = append(readers, one.open(query("a"), "Cookie", MercureCookie+"="+all))
	}
	one.joined(clients)
	id := two.update(all, "a", "1", "private", "on")
	for _, r := range readers {
		r.want(t, message{Data: "1", ID: id})
	}
	one.Drain(t.Context(), 100*time.Millisecond)
	for _, r := range readers {
		for err := error(nil); err == nil; {
			var m message
			if m, err = r.next(); err == nil {
				t.Errorf("got %+v while the node is drained", m)
			}
		}
	}
	if _, err := openMercure(one.url, query("a")); err == nil || !strings.HasPrefix(err.Error(), "503") {
		t.Errorf("a client that comes gets %v", err)
	}
	status, body := one.request("GET", mercure.Path+"?topic=a", "", "Accept", "text/event-stream")
	if status != 200 || !strings.Contains(body, "retry: ") {
		t.Errorf("an EventSource that comes gets %d %s", status, body)
	}
	two.update(all, "a", "2", "private", "on")
	for _, r := range readers {
		again := two.open(query("a"), "Cookie", MercureCookie+"="+all, "Last-Event-ID", r.lastID)
		if got := again.header.Get("Last-Event-ID"); got != r.lastID {
			t.Errorf("the answer has the id %q, want %q", got, r.lastID)
		}
		again.want(t, message{Data: "2"})
	}
	for ends := 0; ends < clients; {
		m, err := watcher.next()
		must(t, err)
		var d subscriptionMessage
		must(t, json.Unmarshal([]byte(m.Data), &d))
		if d.Topic == "a" && !d.Active {
			ends++
		}
	}
}

// Without the configuration the paths are not there, and without tokens it is refused.
func TestMercureOff(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Authorize: JWT("HS256", secret)})
	for _, path := range []string{mercure.Path, mercure.Path + "/subscriptions"} {
		if status, _ := s.request("GET", path+"?topic=a", ""); status != 404 {
			t.Errorf("%s gets %d", path, status)
		}
	}
	if _, err := New(t.Context(), Config{Conn: s.node.Conn, Mercure: &MercureConfig{}}); err == nil {
		t.Error("a gateway without tokens serves Mercure")
	}
}
