package gateway

import (
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/golang-jwt/jwt/v5"

	"github.com/socknotify/socknotify/gateway/internal/keys"
)

// user returns the token of a user who may do everything but control.
func user(t *testing.T, name string) string {
	t.Helper()
	return userToken(t, keys.Claims{RegisteredClaims: jwt.RegisteredClaims{Subject: name}})
}

func userToken(t *testing.T, c keys.Claims) string {
	t.Helper()
	c.Push.Read, c.Push.Write = []string{">"}, []string{">"}
	c.ExpiresAt = jwt.NewNumericDate(time.Now().Add(time.Hour))
	s, err := jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString(secret)
	must(t, err)
	return s
}

// Each client has its own rate, whichever connections it has. Beyond it, it is told when to come
// back, and others go on.
func TestRates(t *testing.T) {
	var passed atomic.Int64
	began := time.Now()
	now := func() time.Time { return began.Add(time.Duration(passed.Load())) }
	s := newSite(t, t.TempDir(), Config{Authorize: JWT("HS256", secret), now: now,
		PublishRate: Rate{PerSecond: 1, Burst: 3}, SubscribeRate: Rate{PerSecond: 1, Burst: 2}})
	alice, bob := "Bearer "+user(t, "alice"), "Bearer "+user(t, "bob")
	other := jwt.RegisteredClaims{Subject: "alice", ID: "2"}
	again := "Bearer " + userToken(t, keys.Claims{RegisteredClaims: other})
	do := func(method, path, token string, want int) {
		t.Helper()
		r, err := http.NewRequest(method, s.url+path, nil) // each on a connection of its own
		must(t, err)
		r.Header.Set("Authorization", token)
		answer, err := roundTripper.RoundTrip(r)
		must(t, err)
		answer.Body.Close()
		after, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		if answer.StatusCode != want || (want == 429) != (after > 0) {
			t.Errorf("%s %s: %d, Retry-After %d, want %d", method, path, answer.StatusCode, after, want)
		}
	}
	for range 3 {
		do("POST", "/publish?topic=a", alice, 200)
	}
	before := s.Stats().Refused
	do("POST", "/publish?topic=a", alice, 429)
	do("POST", "/publish?topic=a", again, 429)
	do("POST", "/publish?topic=a", bob, 200)
	if n := s.Stats().Refused - before; n != 2 {
		t.Errorf("%d were counted", n)
	}
	for range 2 {
		do("GET", "/poll?topic=a&last=1", alice, 200)
	}
	do("GET", "/poll?topic=a&last=1", alice, 429)
	do("GET", "/poll?topic=a&last=1", bob, 200)
	r, err := http.NewRequest("GET", s.url+"/events?topic=a", nil)
	must(t, err)
	r.Header.Set("Authorization", again)
	r.Header.Set("Accept", "text/event-stream")
	answer, err := roundTripper.RoundTrip(r)
	must(t, err)
	answer.Body.Close()
	if answer.StatusCode != 200 || answer.Header.Get("Retry-After") == "" { // it would end at 429
		t.Errorf("an EventSource gets %s", answer.Status)
	}
	passed.Add(int64(time.Second))
	do("POST", "/publish?topic=a", alice, 200)
	do("POST", "/publish?topic=a", alice, 429)
	do("GET", "/poll?topic=a&last=1", again, 200)
}

// Messages over WebSockets are counted for the client, so that a new connection does not help.
func TestMessageRate(t *testing.T) {
	began := time.Now()
	s := newSite(t, t.TempDir(), Config{now: func() time.Time { return began }, MessageRate: Rate{PerSecond: 1, Burst: 5},
		PublishRate: Rate{PerSecond: 1, Burst: 4}})
	check := undisturbed(t, s)
	first, err := openWS(s.url, "topic=live.a")
	must(t, err)
	defer first.close()
	for i := range 4 {
		if a := first.ask(t, i+1, "live.b", "x", ""); a.Error != nil {
			t.Errorf("%d: %+v", i, a.Error)
		}
	}
	a := first.ask(t, 5, "live.b", "x", "")
	if a.Error == nil || a.Error.Status != 429 || a.Error.Retry <= 0 {
		t.Errorf("%+v", a)
	}
	second, err := openWS(s.url, "")
	must(t, err)
	defer second.close()
	second.send(t, `{"ref":6,"publish":{"topic":"live.b"}}`)
	var closed wsutil.ClosedError
	if _, err := second.read(); !errors.As(err, &closed) || closed.Code != ws.StatusPolicyViolation {
		t.Errorf("after too many messages: %v", err)
	}
	check()
}
