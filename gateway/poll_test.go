package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
)

// A poll without news waits without a goroutine, and its connection is kept for the next one.
func TestPollWaits(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	client := &http.Client{Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	answers := make(chan string, 1)
	poll := func(ctx context.Context) {
		r, _ := http.NewRequestWithContext(ctx, "GET", s.url+"/poll?topic=a", nil)
		res, err := client.Do(r)
		if err != nil {
			answers <- "none"
			return
		}
		defer res.Body.Close()
		var got pollMessage
		b, _ := io.ReadAll(res.Body)
		if err := json.Unmarshal(b, &got); err != nil || res.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%v, %v: %s", err, res.Header, b)
		}
		if len(got.Events) == 0 {
			answers <- "nothing"
			return
		}
		answers <- got.Events[0].Data
	}
	waits := func() {
		until(t, "the poll waits without a goroutine", func() bool {
			st := s.http.Stats()
			return st.Suspended == 1 && st.Blocked == 0 && st.Parked == 1 && s.members() == 1
		})
	}
	for _, text := range []string{"one", "two", "three"} {
		go poll(t.Context())
		waits()
		s.publish("a", text)
		if got := <-answers; got != text {
			t.Errorf("%q, want %q", got, text)
		}
		until(t, "the client has left", func() bool { return s.Gateway.Stats().Conns == 0 })
	}
	if n := s.http.Stats().Resumed; n != 3 {
		t.Errorf("%d polls were resumed", n)
	}
	ctx, leave := context.WithCancel(t.Context())
	go poll(ctx)
	waits()
	leave()
	if got := <-answers; got != "none" {
		t.Errorf("a client that has left got %q", got)
	}
	until(t, "the client has left", func() bool { return s.Gateway.Stats().Conns == 0 && s.members() == 0 })
	go poll(t.Context())
	waits()
	if err := s.Gateway.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if got := <-answers; got != "nothing" {
		t.Errorf("at the end a client got %q", got)
	}
}
