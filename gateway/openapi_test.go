package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/golang-jwt/jwt/v5"
	"go.yaml.in/yaml/v4"

	"github.com/socknotify/socknotify/gateway/internal/access"
)

// A description is openapi.yaml, with which requests and answers are compared. No object has a field
// that is not described.
type apiDescription struct {
	*openapi3.T
	t    *testing.T
	seen map[string]bool // operations with a status, such as "GET /events 200"
}

func readDescription(t *testing.T) *apiDescription {
	t.Helper()
	var all any
	must(t, yaml.Unmarshal(description, &all))
	closeObjects(all)
	b, err := json.Marshal(all)
	must(t, err)
	doc, err := openapi3.NewLoader().LoadFromData(b)
	must(t, err)
	must(t, doc.Validate(t.Context()))
	openapi3filter.RegisterBodyDecoder("text/event-stream", openapi3filter.PlainBodyDecoder)
	openapi3filter.RegisterBodyDecoder("text/javascript", openapi3filter.PlainBodyDecoder)
	return &apiDescription{doc, t, make(map[string]bool)}
}

// closeObjects makes schemas of objects refuse other properties.
func closeObjects(node any) {
	switch n := node.(type) {
	case map[string]any:
		if n["type"] == "object" && n["properties"] != nil {
			n["additionalProperties"] = false
		}
		for _, v := range n {
			closeObjects(v)
		}
	case []any:
		for _, v := range n {
			closeObjects(v)
		}
	}
}

// operations returns those that are described, such as "GET /events".
func (d *apiDescription) operations() (all []string) {
	for path, item := range d.Paths.Map() {
		for method := range item.Operations() {
			all = append(all, method+" "+path)
		}
	}
	slices.Sort(all)
	return all
}

// route returns the operation with a name.
func (d *apiDescription) route(name string) *routers.Route {
	d.t.Helper()
	method, path, _ := strings.Cut(name, " ")
	item := d.Paths.Value(path)
	if item == nil || item.Operations()[method] == nil {
		d.t.Fatalf("%s is not described", name)
	}
	return &routers.Route{Spec: d.T, Path: path, PathItem: item, Method: method, Operation: item.Operations()[method]}
}

// describes reports whether an operation has answers with a status.
func (d *apiDescription) describes(name string, status int) bool {
	return d.route(name).Operation.Responses.Status(status) != nil
}

// fits fails unless JSON is as a schema says.
func (d *apiDescription) fits(schema string, text []byte) {
	d.t.Helper()
	var v any
	err := json.Unmarshal(text, &v)
	if err == nil {
		err = d.Components.Schemas[schema].Value.VisitJSON(v, openapi3.EnableJSONSchema2020())
	}
	if err != nil {
		d.t.Errorf("%s is no %s: %v", text, schema, err)
	}
}

// A call is a request of an operation.
type call struct {
	target, body string
	header       []string
	wrong        bool // it is not as described
	until        string
}

// ask sends a request, compares it and the answer with the description, and returns the body, up to
// the text until if there is one.
func (d *apiDescription) ask(base, name string, c call, want int) string {
	d.t.Helper()
	method, path, _ := strings.Cut(name, " ")
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, base+c.target, strings.NewReader(c.body))
	must(d.t, err)
	for i := 0; i < len(c.header); i += 2 {
		if r.Header.Set(c.header[i], c.header[i+1]); c.header[i] == "Host" {
			r.Host = c.header[i+1]
		}
	}
	input := &openapi3filter.RequestValidationInput{Request: r, PathParams: pathValues(path, r.URL), Route: d.route(name),
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}}
	if err := openapi3filter.ValidateRequest(ctx, input); (err != nil) != c.wrong {
		d.t.Errorf("%s: the request is not as described: %v, want that to be %v", c.target, err, c.wrong)
	}
	r.Body = io.NopCloser(strings.NewReader(c.body))
	answer, err := roundTripper.RoundTrip(r)
	must(d.t, err)
	defer answer.Body.Close()
	var body []byte
	for in := bufio.NewReader(answer.Body); answer.StatusCode != http.StatusSwitchingProtocols; {
		line, err := in.ReadBytes('\n')
		body = append(body, line...)
		if err != nil || c.until != "" && bytes.Contains(line, []byte(c.until)) {
			break
		}
	}
	d.compare(input, answer, body)
	if answer.StatusCode != want {
		d.t.Errorf("%s: %s %q, want %d", c.target, answer.Status, body, want)
	}
	return string(body)
}

// pathValues returns the values of the parameters of a path.
func pathValues(path string, u *url.URL) map[string]string {
	values := make(map[string]string)
	given := strings.Split(u.EscapedPath(), "/")
	for i, part := range strings.Split(path, "/") {
		if strings.HasPrefix(part, "{") && i < len(given) {
			values[strings.Trim(part, "{}")], _ = url.PathUnescape(given[i])
		}
	}
	return values
}

// common are headers of HTTP, and those that all answers may have.
var common = []string{"Content-Type", "Content-Length", "Date", "Connection", "X-Content-Type-Options", "Vary", "X-Accel-Buffering"}

// compare compares an answer with the description.
func (d *apiDescription) compare(input *openapi3filter.RequestValidationInput, answer *http.Response, body []byte) {
	d.t.Helper()
	name := input.Request.Method + " " + input.Route.Path
	d.seen[fmt.Sprint(name, " ", answer.StatusCode)] = true
	err := openapi3filter.ValidateResponse(d.t.Context(), (&openapi3filter.ResponseValidationInput{RequestValidationInput: input,
		Status: answer.StatusCode, Header: answer.Header, Options: input.Options}).SetBodyBytes(body))
	if err != nil {
		d.t.Errorf("%s: %v: %q", name, err, body)
		return
	}
	of := input.Route.Operation.Responses.Status(answer.StatusCode).Value
	if len(of.Content) == 0 && len(body) > 0 {
		d.t.Errorf("%s: %d has the body %q, and no content is described", name, answer.StatusCode, body)
	}
	for h := range answer.Header {
		if of.Headers[h] == nil && !slices.Contains(common, h) &&
			!slices.ContainsFunc(slices.Collect(maps.Keys(of.Headers)), func(s string) bool { return strings.EqualFold(s, h) }) {
			d.t.Errorf("%s: the header %s of %d is not described", name, h, answer.StatusCode)
		}
	}
}

// socketHeader is that of a request for a WebSocket.
var socketHeader = []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13",
	"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}

const mercurePath = "/.well-known/mercure"

// validCalls has a request of each operation, and the status of its answer for a user who may do everything.
var validCalls = map[string]struct {
	call
	status int
}{
	"GET /events":       {call{target: "/events?topic=a&topic=live.b&format=json", until: "id: "}, 200},
	"GET /socket":       {call{target: "/socket?topic=a&after=first", header: socketHeader}, 101},
	"GET /poll":         {call{target: "/poll?topic=a&last=2"}, 200},
	"POST /connection":  {call{target: "/connection?client=x-1", body: `{"unsubscribe":{"topic":"a"}}`, header: []string{"Content-Type", "application/json"}}, 404},
	"POST /publish":     {call{target: "/publish?topic=a", body: "x", header: []string{"Content-Type", "text/plain", "Idempotency-Key", "k"}}, 200},
	"GET /presence":     {call{target: "/presence?topic=room.1"}, 200},
	"POST /disconnect":  {call{target: "/disconnect?user=unknown"}, 202},
	"POST /unsubscribe": {call{target: "/unsubscribe?client=x-1&topic=a.*"}, 202},
	"GET /push.js":      {call{target: "/push.js"}, 200},
	"GET /openapi.yaml": {call{target: "/openapi.yaml"}, 200},
	"GET /healthz":      {call{target: "/healthz"}, 200},
	"GET /readyz":       {call{target: "/readyz"}, 200},
	"GET " + mercurePath: {call{target: mercurePath + "?topic=https%3A%2F%2Fexample.org%2F1",
		until: ":"}, 200},
	"POST " + mercurePath: {call{target: mercurePath, body: "topic=https%3A%2F%2Fexample.org%2F1&data=x&private=on&retry=1000",
		header: []string{"Content-Type", "application/x-www-form-urlencoded"}}, 200},
	"GET " + mercurePath + "/subscriptions":                      {call{target: mercurePath + "/subscriptions"}, 200},
	"GET " + mercurePath + "/subscriptions/{topic}":              {call{target: mercurePath + "/subscriptions/a"}, 200},
	"GET " + mercurePath + "/subscriptions/{topic}/{subscriber}": {call{target: mercurePath + "/subscriptions/a/b"}, 404},
}

// with returns the call with another header.
func (c call) with(header ...string) call {
	c.header = append(slices.Clone(c.header), header...)
	return c
}

// apiConfig is that of gateways that have all that is described.
func apiConfig() Config {
	return Config{Presence: []string{"room.*"}, Mercure: &MercureConfig{Subscriptions: true},
		Hosts: []string{"push.example.org"}, MaxMessage: 1000}
}

// apiToken returns the header with the token of a user who may do everything, or nothing.
func apiToken(t *testing.T, name string, everything bool) []string {
	t.Helper()
	claims := jwt.MapClaims{"sub": name, "exp": time.Now().Add(time.Hour).Unix(), "mercure": map[string]any{}, "push": map[string]any{}}
	if everything {
		all := []string{">"}
		claims["push"] = map[string]any{"read": all, "write": all, "presence": all, "control": true}
		claims["mercure"] = map[string]any{"publish": []string{"*"}, "subscribe": []string{"*"}, "payload": map[string]string{"x": "y"}}
	}
	s, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
	must(t, err)
	return []string{"Authorization", "Bearer " + s}
}

// Each route is described, and what is described is a route. Answers to OPTIONS are of paths that are
// described, and CONNECT is GET of HTTP/2.
func TestDescriptionHasAllRoutes(t *testing.T) {
	d := readDescription(t)
	s, _ := guarded(t, apiConfig())
	var routes []string
	for _, pattern := range s.patterns {
		method, path, _ := strings.Cut(pattern, " ")
		switch method {
		case http.MethodOptions, http.MethodConnect:
			if d.Paths.Value(path) == nil {
				t.Errorf("%s is not described", pattern)
			}
		default:
			routes = append(routes, pattern)
		}
	}
	slices.Sort(routes)
	if described := d.operations(); !slices.Equal(routes, described) {
		t.Errorf("the routes are %q, and %q are described", routes, described)
	}
	if calls := slices.Sorted(maps.Keys(validCalls)); !slices.Equal(calls, routes) {
		t.Errorf("this test has requests for %q", calls)
	}
}

// Requests and answers are as openapi.yaml says: with each status that is described, by each operation.
func TestDescription(t *testing.T) {
	defer func(before time.Duration) { access.BodyTimeout = before }(access.BodyTimeout)
	d := readDescription(t)
	s, _ := guarded(t, apiConfig())
	still := time.Now()
	limited := apiConfig()
	limited.SubscribeRate, limited.PublishRate = Rate{PerSecond: 1}, Rate{PerSecond: 1}
	limited.now = func() time.Time { return still }
	slow, _ := guarded(t, limited)
	starting := httptest.NewServer(Unready(apiConfig()))
	defer starting.Close()
	alice, other := apiToken(t, "alice", true), apiToken(t, "other", false)
	for _, name := range d.operations() {
		v := validCalls[name]
		d.ask(s.url, name, v.call.with(alice...), v.status)
		for status, base := range map[int]string{401: s.url, 421: s.url, 503: starting.URL} {
			c := v.call.with()
			if status == 421 {
				c = c.with("Host", "other.example.org")
			}
			if c.until = ""; d.describes(name, status) {
				d.ask(base, name, c, status)
			}
		}
		if d.describes(name, 403) && name != "POST /connection" {
			c := v.call.with(other...)
			if c.until = ""; name == "GET "+mercurePath { // a webhook denies it, and the claims do not
				d.seen[name+" 403"] = true
			} else {
				d.ask(s.url, name, c, 403)
			}
		}
		if d.describes(name, 405) {
			d.askHead(s, name, v.target)
		}
		if d.describes(name, 429) && name != "POST /connection" {
			c := v.call.with(apiToken(t, name, true)...)
			d.ask(slow.url, name, c, v.status)
			c.until = ""
			d.ask(slow.url, name, c, 429)
		}
	}
	d.askMalformed(s, alice)
	d.askConnection(s, slow, alice)
	d.askMore(s, alice)
	access.BodyTimeout = 100 * time.Millisecond
	for _, name := range d.operations() {
		if d.describes(name, 408) {
			d.askLate(s, name, validCalls[name].call.with(alice...))
		}
	}
	for _, name := range d.operations() {
		for status := range d.route(name).Operation.Responses.Map() {
			if !d.seen[name+" "+status] {
				t.Errorf("no answer of %s had the status %s", name, status)
			}
		}
	}
}

// askHead sends HEAD instead of GET.
func (d *apiDescription) askHead(s *site, name, target string) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodHead, s.url+target, nil)
	must(d.t, err)
	answer, err := roundTripper.RoundTrip(r)
	must(d.t, err)
	answer.Body.Close()
	if answer.StatusCode != http.StatusMethodNotAllowed || answer.Header.Get("Allow") != http.MethodGet {
		d.t.Errorf("HEAD %s: %s, %v", target, answer.Status, answer.Header)
	}
	d.seen[fmt.Sprint(name, " ", answer.StatusCode)] = true
}

// askMalformed sends requests that are malformed, or too large.
func (d *apiDescription) askMalformed(s *site, alice []string) {
	d.t.Helper()
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	long := strings.Repeat("x", 20<<10)
	for _, c := range []struct {
		name string
		call
		status int
	}{
		{"GET /events", call{target: "/events?topic=a&format=xml", wrong: true}, 400},
		{"GET /socket", call{target: "/socket?topic=a..b", header: socketHeader}, 400},
		{"GET /socket", call{target: "/socket?topic=a", header: []string{"Upgrade", "other"}, wrong: true}, 426},
		{"GET /poll", call{target: "/poll", wrong: true}, 400},
		{"POST /publish", call{target: "/publish?topic=a..b", body: "x", header: []string{"Content-Type", "text/plain"}}, 400},
		{"POST /publish", call{target: "/publish?topic=a&topic=a..b", body: "x", header: []string{"Content-Type", "text/plain"}}, 400},
		{"POST /publish", call{target: "/publish?topic=a&topic=b", body: "x", header: []string{"Content-Type", "text/plain"}}, 200},
		{"POST /publish", call{target: "/publish", body: `[{"topic":"live.a","data":"x"},{"topic":"live.b","data":"x"}]`,
			header: []string{"Content-Type", "application/json"}}, 202},
		{"POST /publish", call{target: "/publish?topic=a", body: "other", header: []string{"Content-Type", "text/plain", "Idempotency-Key", "k"}}, 422},
		{"POST /publish", call{target: "/publish?topic=a", body: long, header: []string{"Content-Type", "text/plain"}}, 413},
		{"POST /connection", call{target: "/connection?client=x-1", body: "{}", header: []string{"Content-Type", "application/json"}, wrong: true}, 400},
		{"POST /connection", call{target: "/connection?client=x-1", body: `{"unsubscribe":{"topic":"` + long + `"}}`,
			header: []string{"Content-Type", "application/json"}}, 413},
		{"GET /presence", call{target: "/presence?topic=other"}, 400},
		{"GET /presence", call{target: "/presence?topic=room.1&count=true"}, 200},
		{"POST /disconnect", call{target: "/disconnect"}, 400},
		{"POST /unsubscribe", call{target: "/unsubscribe?user=x&topic="}, 400},
		{"GET " + mercurePath, call{target: mercurePath, wrong: true}, 400},
		{"POST " + mercurePath, call{target: mercurePath, body: "topic=a&retry=x", header: form, wrong: true}, 400},
		{"POST " + mercurePath, call{target: mercurePath, body: "topic=a&data=" + long, header: form}, 413},
		{"POST " + mercurePath, call{target: mercurePath, body: "{}", header: []string{"Content-Type", "application/json"}, wrong: true}, 415},
		{"POST " + mercurePath, call{target: mercurePath, body: "topic=a&data=1", header: append(form, "Idempotency-Key", "k")}, 200},
		{"POST " + mercurePath, call{target: mercurePath, body: "topic=a&data=2", header: append(form, "Idempotency-Key", "k")}, 422},
	} {
		d.ask(s.url, c.name, c.call.with(alice...), c.status)
	}
}

// askConnection changes connections of Server-Sent Events, and compares the events with their schemas.
func (d *apiDescription) askConnection(s, slow *site, alice []string) {
	t := d.t
	t.Helper()
	kind := []string{"Content-Type", "application/json"}
	token := strings.TrimPrefix(alice[1], "Bearer ")
	open := func(s *site, token string) (*sseReader, string) {
		r, err := openSSE(s.url, "topic=a&topic=c&topic=*&format=json&token="+token, "other-5")
		must(t, err)
		client := r.header.Get("Push-Client")
		until(t, "it has joined", func() bool {
			_, body := s.request("POST", "/connection?client="+client, `{"unsubscribe":{"topic":"none"}}`, "Authorization", "Bearer "+token)
			return strings.Contains(body, "not subscribed")
		})
		return r, client
	}
	r, client := open(s, token)
	defer r.close()
	change := func(s *site, client, body string, status int, header []string) {
		t.Helper()
		d.ask(s.url, "POST /connection", call{target: "/connection?client=" + client, body: body, header: append(kind, header...)}, status)
	}
	change(s, client, `{"subscribe":{"topic":"b","after":"other-7"}}`, 200, alice)
	change(s, client, `{"refresh":{"token":"`+token+`"}}`, 200, alice)
	change(s, client, `{"unsubscribe":{"topic":"a"}}`, 409, alice)
	change(s, client, `{"unsubscribe":{"topic":"b"}}`, 200, alice)
	change(s, client, `{"unsubscribe":{"topic":"b"}}`, 404, alice)
	change(s, client, `{"subscribe":{"topic":"b"}}`, 403, apiToken(t, "bob", true))
	s.publish("c", "x")
	for _, end := range []string{"", "unsubscribed"} { // gaps come before the event
		for name := "gap"; name != end; {
			m, err := r.next()
			must(t, err)
			name = m.name
			d.fits(map[string]string{"": "Event", "gap": "Gap", "unsubscribed": "Unsubscribed"}[name], []byte(m.Data))
		}
		s.request("POST", "/unsubscribe?topic=c&client="+client, "", alice...)
	}
	other := apiToken(t, "carol", true)
	r, client = open(slow, strings.TrimPrefix(other[1], "Bearer "))
	defer r.close()
	change(slow, client, `{"subscribe":{"topic":"b"}}`, 429, other)
}

// askMore sends requests whose answers depend on what was there before, and the messages of WebSockets.
func (d *apiDescription) askMore(s *site, alice []string) {
	t := d.t
	t.Helper()
	for _, path := range []string{"/push.js", "/openapi.yaml"} {
		d.ask(s.url, "GET "+path, call{target: path}.with("If-None-Match", files[path].tag), 304)
	}
	token := strings.TrimPrefix(alice[1], "Bearer ")
	mercure := call{target: mercurePath + "?topic=a", until: ":"}.with(alice...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", s.url+mercure.target, nil)
	must(t, err)
	r.Header.Set(alice[0], alice[1])
	answer, err := roundTripper.RoundTrip(r)
	must(t, err)
	defer answer.Body.Close()
	one := ""
	until(t, "there is a subscription", func() bool {
		_, body := s.request("GET", mercurePath+"/subscriptions/a", "", alice...)
		var all struct {
			Subscriptions []struct{ ID string }
		}
		if json.Unmarshal([]byte(body), &all) != nil || len(all.Subscriptions) == 0 {
			return false
		}
		one = all.Subscriptions[0].ID
		return true
	})
	d.ask(s.url, "GET "+mercurePath+"/subscriptions", call{target: mercurePath + "/subscriptions"}.with(alice...), 200)
	d.ask(s.url, "GET "+mercurePath+"/subscriptions/{topic}", call{target: mercurePath + "/subscriptions/a"}.with(alice...), 200)
	d.ask(s.url, "GET "+mercurePath+"/subscriptions/{topic}/{subscriber}", call{target: one}.with(alice...), 200)

	for _, path := range []string{"/poll?topic=a&after=other-1", "/poll?topic=a&after=first"} { // a gap, and events
		d.ask(s.url, "GET /poll", call{target: path}.with(alice...), 200)
	}
	socket, err := dialWS(s.url, "topic=s&after=other-1&token="+token)
	must(t, err)
	defer socket.close()
	ask := func(text string) {
		t.Helper()
		d.fits("SocketRequest", []byte(text))
		must(t, wsutil.WriteClientMessage(socket.conn, ws.OpText, []byte(text)))
	}
	ask(`{"ref":1,"publish":{"topic":"s","data":"x","key":"k"}}`)
	ask(`{"ref":2,"subscribe":{"topic":"s2","after":"other-1"}}`)
	ask(`{"ref":3,"unsubscribe":{"topic":"s2"}}`)
	ask(`{"ref":4,"refresh":{"token":"` + token + `"}}`)
	ask(`{"ref":5,"subscribe":{"topic":"s"}}`)
	d.readUntil(socket, "SocketGreeting", "SocketAnswer", "Event")
	s.request("POST", "/unsubscribe?user=alice&topic=s", "", alice...)
	d.readUntil(socket, "Unsubscribed")
}

// readUntil reads messages of a WebSocket, and compares them with their schemas, until it has some of each
// of these.
func (d *apiDescription) readUntil(r *wsReader, schemas ...string) {
	d.t.Helper()
	for len(schemas) > 0 {
		b, err := r.read()
		must(d.t, err)
		kind := messageKind(b)
		d.fits(kind, b)
		schemas = slices.DeleteFunc(schemas, func(s string) bool { return s == kind })
	}
}

// messageKind returns the schema of a message to a WebSocket.
func messageKind(b []byte) string {
	var m map[string]any
	if json.Unmarshal(b, &m) != nil {
		return ""
	}
	for field, schema := range map[string]string{"ref": "SocketAnswer", "client": "SocketGreeting", "topic": "Event"} {
		if m[field] != nil {
			return schema
		}
	}
	if m["gap"] != nil {
		return "SocketGap"
	}
	return "Unsubscribed"
}

// askLate sends a request whose body does not come.
func (d *apiDescription) askLate(s *site, name string, c call) {
	d.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	must(d.t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n", c.target)
	for i := 0; i < len(c.header); i += 2 {
		fmt.Fprintf(conn, "%s: %s\r\n", c.header[i], c.header[i+1])
	}
	io.WriteString(conn, "\r\n")
	r, err := http.NewRequest("POST", s.url+c.target, nil)
	must(d.t, err)
	answer, err := http.ReadResponse(bufio.NewReader(conn), r)
	must(d.t, err)
	body, err := io.ReadAll(answer.Body)
	must(d.t, err)
	input := &openapi3filter.RequestValidationInput{Request: r, Route: d.route(name), Options: &openapi3filter.Options{IncludeResponseStatus: true}}
	d.compare(input, answer, body)
	if answer.StatusCode != http.StatusRequestTimeout {
		d.t.Errorf("%s: %s", name, answer.Status)
	}
}

// What webhooks send is as openapi.yaml says.
func TestDescriptionOfWebhooks(t *testing.T) {
	d := readDescription(t)
	var mu sync.Mutex
	seen := make(map[string]bool)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		mu.Lock()
		defer mu.Unlock()
		seen[name] = true
		item := d.Webhooks[name]
		input := &openapi3filter.RequestValidationInput{Request: r,
			Route: &routers.Route{Spec: d.T, Path: r.URL.Path, PathItem: item, Method: r.Method, Operation: item.Post}}
		if err := openapi3filter.ValidateRequest(r.Context(), input); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		text := `{"result":{}}`
		if name == "connect" {
			text = `{"result":{"user":"alice","expire_at":4000000000}}`
		}
		d.fits("WebhookAnswer", []byte(text))
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, text)
	}))
	defer backend.Close()
	s := newSite(t, t.TempDir(), Config{Webhooks: Webhooks{Connect: backend.URL + "/connect", Subscribe: backend.URL + "/subscribe",
		Publish: backend.URL + "/publish", Disconnect: backend.URL + "/disconnect", Secret: hookSecret, Private: true, Timeout: time.Minute}})
	r, err := openWS(s.url, "topic=a")
	must(t, err)
	if status, body := s.request("POST", "/publish?topic=a", "x"); status != http.StatusOK {
		t.Fatal(status, body)
	}
	expect(t, r, message{Topic: "a", Data: "x"})
	r.close()
	until(t, "all were called", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == len(d.Webhooks)
	})
}
