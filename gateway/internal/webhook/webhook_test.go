package webhook

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A webhook that hangs, asked as often as may be, stops no other.
func TestHangingHook(t *testing.T) {
	var hanging atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/hangs", func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // so that the end of the request is noticed
		hanging.Add(1)
		<-r.Context().Done()
	})
	mux.HandleFunc("/answers", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"result": {}}`) })
	s := httptest.NewServer(mux)
	defer s.Close()
	h := New(Config{Publish: s.URL + "/hangs", Connect: s.URL + "/answers", Secret: make([]byte, 32), Private: true,
		Timeout: 20 * time.Second}, func(string, error) {})
	defer h.Close()
	var asking sync.WaitGroup
	ctx := t.Context()
	for range maxRequests {
		asking.Go(func() { h.Ask(ctx, h.Publish, NewRequest("", "http", "")) })
	}
	for hanging.Load() < maxRequests {
		time.Sleep(time.Millisecond)
	}
	if _, err := h.Ask(ctx, h.Connect, NewRequest("", "sse", "")); err != nil {
		t.Error(err)
	}
	s.CloseClientConnections()
	asking.Wait()
}
