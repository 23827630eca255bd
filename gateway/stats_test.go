package gateway

import (
	"strings"
	"testing"
	"time"
)

// Clients that do not read are listed, with what waits for them, and the state of the stream has the
// time of its oldest event.
func TestSlowest(t *testing.T) {
	s, _ := guarded(t, Config{MaxQueued: 1 << 30, WriteTimeout: -1})
	if all := s.Slowest(10); len(all) != 0 {
		t.Errorf("got %+v without clients", all)
	}
	before := time.Now()
	query := "topic=live.x&topic=a&token="
	sse, err := openSSE(s.url, query+user(t, "alice"), "")
	must(t, err)
	defer sse.close()
	ws, err := openWS(s.url, query+user(t, "bob"))
	must(t, err)
	defer ws.close()
	until(t, "both have joined", func() bool { return s.members() == 4 })
	s.publish("a", "1")
	data := strings.Repeat("x", 200<<10)
	var all []SlowClient
	until(t, "both are slow", func() bool {
		s.publish("live.x", data)
		all = s.Slowest(10)
		return len(all) == 2
	})
	for _, c := range all {
		if want := map[string]string{"alice": "sse", "bob": "websocket"}[c.User]; c.Transport != want || c.Queued <= 0 || c.Client == "" {
			t.Errorf("got %+v", c)
		}
	}
	if all[0].Queued < all[1].Queued || len(s.Slowest(1)) != 1 {
		t.Errorf("got %+v, and %+v of these", all, s.Slowest(1))
	}
	until(t, "an audit has seen the event", func() bool {
		s.Changed()
		one := s.Streams()[0]
		return len(s.Streams()) == 1 && one.Name == "PUSH" && one.First == 1 && one.Last == 1 &&
			!one.Oldest.Before(before.Add(-time.Second)) && !one.Oldest.After(time.Now().Add(time.Second))
	})
}
