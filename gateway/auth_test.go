package gateway

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/keys"
	"github.com/socknotify/socknotify/gateway/internal/mercure"
)

var secret = []byte("a secret of 32 bytes, for a test")

// token returns a token that expires after d.
func token(t *testing.T, method jwt.SigningMethod, key any, d time.Duration, read, write []string) string {
	t.Helper()
	var c keys.Claims
	c.Push.Read, c.Push.Write = read, write
	if d != 0 {
		c.ExpiresAt = jwt.NewNumericDate(time.Now().Add(d))
	}
	s, err := jwt.NewWithClaims(method, c).SignedString(key)
	must(t, err)
	return s
}

// A lockedBuffer is a log of concurrent writers.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// text returns what was written.
func (b *lockedBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// A token says which topics its bearer may read and write. It may come in a header, a cookie or the query, and is not
// logged.
func TestTokens(t *testing.T) {
	var log lockedBuffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := newSite(t, t.TempDir(), Config{Authorize: JWT("HS256", secret), Logger: logger})
	all := []string{">"}
	sign := func(method jwt.SigningMethod, key any, d time.Duration) string {
		return token(t, method, key, d, all, all)
	}
	unsigned := sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, time.Minute)
	critical := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"exp": time.Now().Add(time.Minute).Unix(), "push": map[string]any{"write": all}})
	critical.Header["crit"] = []string{"b64"}
	withCritical, err := critical.SignedString(secret)
	must(t, err)
	live := token(t, jwt.SigningMethodHS256, secret, time.Minute, []string{"*.b", "*"}, []string{"*.b"})
	bad := token(t, jwt.SigningMethodHS256, secret, time.Minute, nil, []string{"a..b"})
	good := token(t, jwt.SigningMethodHS256, secret, time.Minute, []string{"a.*", "b"}, []string{"a.>"})
	for _, c := range []struct {
		name, method, path, token string
		status                    int
	}{
		{"no token", "POST", "/publish?topic=a.b", "", 401},
		{"good", "POST", "/publish?topic=a.b", good, 200},
		{"good, below a wildcard", "POST", "/publish?topic=a.b.c", good, 200},
		{"other topic", "POST", "/publish?topic=b", good, 403},
		{"other topic", "GET", "/events?topic=c", good, 403},
		{"one of two topics", "GET", "/events?topic=b&topic=c", good, 403},
		{"wider than allowed", "GET", "/events?topic=a.>", good, 403},
		{"wider than allowed", "GET", "/poll?topic=*", good, 403},
		{"live topic", "GET", "/events?topic=live.b", live, 403},
		{"live topic", "GET", "/events?topic=live", live, 403},
		{"live topic", "POST", "/publish?topic=live.b", live, 403},
		{"durable topic beside", "POST", "/publish?topic=a.b", live, 200},
		{"critical extension", "POST", "/publish?topic=a.b", withCritical, 401},
		{"expired", "POST", "/publish?topic=a.b", sign(jwt.SigningMethodHS256, secret, -time.Minute), 401},
		{"never expires", "POST", "/publish?topic=a.b", sign(jwt.SigningMethodHS256, secret, 0), 401},
		{"other secret", "POST", "/publish?topic=a.b", sign(jwt.SigningMethodHS256, []byte("other"), time.Minute), 401},
		{"other method", "POST", "/publish?topic=a.b", sign(jwt.SigningMethodHS512, secret, time.Minute), 401},
		{"not signed", "POST", "/publish?topic=a.b", unsigned, 401},
		{"malformed", "POST", "/publish?topic=a.b", "a.b.c", 401},
		{"invalid topic", "POST", "/publish?topic=a.b", bad, 401},
	} {
		status, body := s.request(c.method, c.path, "x", "Authorization", "Bearer "+c.token)
		if status != c.status {
			t.Errorf("%s: %s %s: %d %q, want %d", c.name, c.method, c.path, status, body, c.status)
		}
		inQuery, _ := s.request(c.method, c.path+"&token="+c.token, "x")
		inCookie, _ := s.request(c.method, c.path, "x", "Cookie", TokenCookie+"="+c.token,
			"Origin", s.url) // a page of the gateway's own may publish with a cookie
		if inQuery != c.status || inCookie != c.status {
			t.Errorf("%s: in the query %d, in a cookie %d, want %d", c.name, inQuery, inCookie, c.status)
		}
	}
	if n := s.Stats().Denied; n == 0 {
		t.Error("nothing was counted")
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if strings.Contains(log.String(), good) || strings.Contains(log.String(), "token=") {
		t.Errorf("a token is in the log: %s", log.String())
	}
}

// A client is disconnected when its token expires, and cannot come back with it.
func TestTokenExpires(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Authorize: JWT("HS256", secret)})
	var short string
	var sse *sseReader
	var socket *wsReader
	for d := 2 * time.Second; socket == nil; d *= 2 { // longer if the token has expired before both have come
		short = "&token=" + token(t, jwt.SigningMethodHS256, secret, d, []string{">"}, nil)
		var err error
		if sse, err = openSSE(s.url, "topic=a"+short, ""); err == nil {
			if socket, err = openWS(s.url, "topic=a"+short); err != nil {
				sse.close()
			}
		}
		if err != nil && d > time.Minute {
			t.Fatal(err)
		}
	}
	defer sse.close()
	defer socket.close()
	if m, err := sse.next(); err != io.EOF {
		t.Errorf("got %+v, %v, want EOF", m, err)
	}
	if m, err := socket.next(); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("got %+v, %v, want a close frame", m, err)
	}
	if _, err := openSSE(s.url, "topic=a"+short, ""); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("an expired token was accepted: %v", err)
	}
}

// Pages of the origins that are allowed may use the gateway, and no others.
func TestOrigins(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Origins: []string{"https://good.example"}})
	for origin, want := range map[string]string{"https://good.example": "https://good.example", "https://bad.example": ""} {
		r, err := http.NewRequest("OPTIONS", s.url+"/publish", nil)
		must(t, err)
		r.Header.Set("Origin", origin)
		answer, err := roundTripper.RoundTrip(r)
		must(t, err)
		answer.Body.Close()
		if got := answer.Header.Get("Access-Control-Allow-Origin"); got != want {
			t.Errorf("%s: got %q", origin, got)
		}
		for _, name := range []string{"Authorization", "Cache-Control", "Last-Event-ID"} {
			allowed := strings.Contains(answer.Header.Get("Access-Control-Allow-Headers"), name)
			if allowed != (want != "") {
				t.Errorf("%s: the header %s is allowed: %t", origin, name, allowed)
			}
		}
		upgrade, err := http.NewRequest("GET", s.url+"/socket?topic=a", nil)
		must(t, err)
		for _, h := range [][2]string{{"Origin", origin}, {"Connection", "Upgrade"}, {"Upgrade", "websocket"},
			{"Sec-WebSocket-Version", "13"}, {"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}} {
			upgrade.Header.Set(h[0], h[1])
		}
		answer, err = roundTripper.RoundTrip(upgrade)
		must(t, err)
		answer.Body.Close()
		if allowed := answer.StatusCode == http.StatusSwitchingProtocols; allowed != (want != "") {
			t.Errorf("WebSocket from %s: %s", origin, answer.Status)
		}
	}
}

// A page publishes if its origin may, and by a cookie only if it is the gateway's own or a listed
// one.
func TestPublishOrigins(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{PublishOrigins: []string{"https://good.example"},
		Origins: []string{"https://reader.example"}})
	all := newSiteOn(t, s.node, Config{Origins: []string{"*"}})
	own := strings.TrimPrefix(s.url, "http://")
	const cookie, bearer = "Cookie", "Authorization"
	for _, c := range []struct {
		origin, with  string
		listed, every int // the statuses of the two gateways
	}{
		{"", "", 200, 200},
		{"", cookie, 403, 403},
		{"", bearer, 200, 200},
		{"https://good.example", "", 200, 200},
		{"https://good.example", cookie, 200, 403},
		{"https://reader.example", "", 403, 200},
		{"https://evil.example", "", 403, 200},
		{"https://evil.example", cookie, 403, 403},
		{"https://evil.example", bearer, 403, 200},
		{"null", "", 403, 200},
		{"null", cookie, 403, 403},
		{"http://" + own, cookie, 200, 403},
		{"https://" + own, "", 200, 200},
	} {
		for site, want := range map[*site]int{s: c.listed, all: c.every} {
			header := []string{"Content-Type", "text/plain"}
			if c.origin != "" {
				header = append(header, "Origin", c.origin)
			}
			if c.with != "" {
				header = append(header, c.with, TokenCookie+"=x")
			}
			status, body := site.request("POST", "/publish?topic=a", "x", header...)
			if status != want {
				t.Errorf("origin %q with %q: %d %s, want %d", c.origin, c.with, status, body, want)
			}
		}
	}
}

// A page whose host name stands for a loopback address reads nothing from a gateway that needs no
// token. Where hosts are listed, others are refused in any case.
func TestHosts(t *testing.T) {
	open := newSite(t, t.TempDir(), Config{})
	authorize := func(*http.Request) (Grant, error) { return allowAll, nil }
	guarded := newSiteOn(t, open.node, Config{Authorize: authorize})
	names := []string{"push.example.org"}
	listed := newSiteOn(t, open.node, Config{Authorize: authorize, Hosts: names})
	for host, want := range map[string][3]int{
		"localhost":             {200, 200, 200},
		"localhost:8080":        {200, 200, 200},
		"demo.localhost":        {200, 200, 200},
		"127.0.0.1:1":           {200, 200, 200},
		"[::1]:1":               {200, 200, 200},
		"evil.example:8080":     {421, 200, 421},
		"localhost.evil":        {421, 200, 421},
		"127.0.0.1.evil":        {421, 200, 421},
		"Push.Example.ORG:8443": {421, 200, 200},
	} {
		for i, s := range []*site{open, guarded, listed} {
			status, err := s.send("POST /publish?topic=a HTTP/1.1\r\nHost: " + host + "\r\n" +
				"Content-Length: 1\r\n\r\nx")
			if err != nil || status != want[i] {
				t.Errorf("gateway %d, host %s: %d, %v, want %d", i, host, status, err, want[i])
			}
		}
	}
}

// Clients that do not read delay no other. They are closed, or lose events and are told.
func TestSlowClients(t *testing.T) {
	for _, policy := range []SlowPolicy{SlowClose, SlowDrop} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			s := newSite(t, t.TempDir(), Config{MaxQueued: 64 << 10, SlowPolicy: policy, WriteTimeout: time.Hour})
			var slow []reader
			for i := range 10 {
				if i%2 == 0 {
					r, err := openSSE(s.url, "topic=a", "")
					must(t, err)
					slow = append(slow, r)
				} else {
					r, err := openWS(s.url, "topic=a")
					must(t, err)
					slow = append(slow, r)
				}
			}
			quick, err := openSSE(s.url, "topic=a", "")
			must(t, err)
			defer quick.close()
			until(t, "all have joined", func() bool { return s.members() == 11 })
			text := strings.Repeat("x", 16<<10)
			enough := func() bool {
				st := s.Stats()
				return policy == SlowClose && st.Conns == 1 || policy == SlowDrop && st.Dropped >= 100
			}
			n, all := 0, ledger{t: t}
			for ; !enough(); n++ {
				if n == 2000 {
					t.Fatalf("slow clients are not noticed: %+v", s.Stats())
				}
				all.publish(s, "a", text)
				expect(t, quick, message{Data: text})
				if q := s.Stats().QueuedBytes; q > 11*(64<<10+32<<10) {
					t.Fatalf("%d bytes are queued", q)
				}
			}
			if st := s.Stats(); policy == SlowClose && st.TimedOut.Slow != 10 {
				t.Errorf("%d slow clients were counted: %+v", st.TimedOut.Slow, st)
			}
			if policy == SlowDrop {
				all.publish(s, "a", "after")
				for _, r := range slow { // they read what was queued, then the gap, and then what follows
					l := ledger{t: t}
					for len(l.gaps) == 0 || slices.Max(append(l.got, 0)) <= l.gaps[0].Through {
						m, err := r.next()
						must(t, err)
						l.note(m)
						if m.Gap != "" && m.Gap != event.GapSlow {
							t.Fatalf("%+v", m)
						}
						// A WebSocket is told with the first event that finds room again.
						all.publish(s, "a", "more")
					}
					for _, seq := range all.acked {
						if seq <= l.got[len(l.got)-1] {
							l.acked = append(l.acked, seq)
						}
					}
					l.check()
				}
			}
			for _, r := range slow {
				r.close()
			}
		})
	}
}

// Drain tells clients to come back elsewhere, and closes their connections.
func TestDrain(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	var all []reader
	for i := range 6 {
		if i%2 == 0 {
			r, err := openSSE(s.url, "topic=a&topic=b", "")
			must(t, err)
			all = append(all, r)
		} else {
			r, err := openWS(s.url, "topic=a")
			must(t, err)
			all = append(all, r)
		}
	}
	until(t, "all have joined", func() bool { return s.members() == 9 })
	s.Drain(t.Context(), 300*time.Millisecond)
	for _, r := range all {
		_, err := r.next()
		_, sse := r.(*sseReader)
		if sse && err != io.EOF || !sse && (err == nil || !strings.Contains(err.Error(), "elsewhere")) {
			t.Errorf("%T: %v", r, err)
		}
		r.close()
	}
	if status, _ := s.request("GET", "/readyz", ""); status != 503 {
		t.Errorf("readyz: %d", status)
	}
	if status, _ := s.request("GET", "/events?topic=a", ""); status != 503 {
		t.Errorf("a new client: %d", status)
	}
	until(t, "all have left", func() bool { return s.Stats().Conns == 0 })
}

// A token is valid for the issuer and the audience that are required, by claims whose names are
// exactly theirs, and for Mercure if it has its claim.
func TestRequiredClaims(t *testing.T) {
	now := time.Now()
	later, earlier := now.Add(time.Hour).Unix(), now.Add(-time.Hour).Unix()
	sign := func(claims jwt.MapClaims) string {
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
		must(t, err)
		return token
	}
	both := Require{Issuer: "https://id.example", Audience: "push"}
	push := map[string]any{"read": []string{"a"}, "READ": []string{">"}, "Read": []string{">"}}
	for name, c := range map[string]struct {
		require []Require
		path    string
		claims  jwt.MapClaims
		want    bool
	}{
		"nothing is required":  {nil, "/events", jwt.MapClaims{"exp": later}, true},
		"an empty requirement": {[]Require{{}}, "/events", jwt.MapClaims{"exp": later}, true},
		"both": {[]Require{both}, "/events",
			jwt.MapClaims{"exp": later, "iss": both.Issuer, "aud": "push"}, true},
		"one of several audiences": {[]Require{both}, "/events",
			jwt.MapClaims{"exp": later, "iss": both.Issuer, "aud": []string{"mail", "push"}}, true},
		"another audience": {[]Require{both}, "/events",
			jwt.MapClaims{"exp": later, "iss": both.Issuer, "aud": "mail"}, false},
		"no audience":    {[]Require{both}, "/events", jwt.MapClaims{"exp": later, "iss": both.Issuer}, false},
		"another issuer": {[]Require{both}, "/events", jwt.MapClaims{"exp": later, "iss": "x", "aud": "push"}, false},
		"no issuer":      {[]Require{both}, "/events", jwt.MapClaims{"exp": later, "aud": "push"}, false},
		"names in capitals": {[]Require{both}, "/events",
			jwt.MapClaims{"exp": later, "ISS": both.Issuer, "AUD": "push"}, false},
		"an EXP beside exp":     {nil, "/events", jwt.MapClaims{"exp": earlier, "eXP": later, "zEXP": later}, false},
		"an EXP alone":          {nil, "/events", jwt.MapClaims{"EXP": later}, false},
		"for Mercure":           {nil, mercure.Path, jwt.MapClaims{"mercure": map[string]any{}}, true},
		"without its claim":     {nil, mercure.Path, jwt.MapClaims{"exp": later}, false},
		"null for its claim":    {nil, mercure.Path, jwt.MapClaims{"mercure": nil}, false},
		"its claim in capitals": {nil, mercure.Path, jwt.MapClaims{"MERCURE": map[string]any{}}, false},
		"for Mercure, required": {[]Require{both}, mercure.Path, jwt.MapClaims{"mercure": map[string]any{}}, false},
	} {
		c.claims["push"], c.claims["PUSH"] = push, map[string]any{"read": []string{">"}}
		r := httptest.NewRequest("GET", c.path, nil)
		r.Header.Set("Authorization", "Bearer "+sign(c.claims))
		grant, err := JWT("HS256", secret, c.require...)(r)
		if (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && !slices.Equal(grant.Read, []string{"a"}) {
			t.Errorf("%s: it may read %v", name, grant.Read)
		}
	}
}
