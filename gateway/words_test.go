package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"reflect"
	"testing"

	"github.com/socknotify/socknotify/internal/test/words"
)

func TestWords(t *testing.T) {
	words.Check(t, reflect.TypeFor[Config](), reflect.TypeFor[Stats]())
	words.Keys(t, ".")
	words.Keys(t, "cmd/socknotify-push")
	for _, inner := range []string{"access", "hub", "keys", "mercure", "order", "presence", "stream", "transport", "trust", "webhook"} {
		words.Keys(t, "internal/"+inner)
	}
}

// A negative number means that there is no such limit.
func TestNegative(t *testing.T) {
	c := Config{Heartbeat: -1, Retry: -1}
	words.Negative(&c)
	s := newSite(t, t.TempDir(), c)
	sse, err := openSSE(s.url, "topic=a", "")
	must(t, err)
	defer sse.close()
	ws, err := openWS(s.url, "topic=a")
	must(t, err)
	defer ws.close()
	until(t, "both have joined", func() bool { return s.members() == 2 })
	s.publish("a", "1")
	expect(t, sse, message{Data: "1"})
	expect(t, ws, message{Topic: "a", Data: "1"})
}

// A value that cannot work is ErrInvalid and names the field.
func TestInvalid(t *testing.T) {
	node := newNode(t, NodeConfig{Store: t.TempDir()})
	for field, c := range map[string]Config{
		"Conn":        {},
		"SlowPolicy":  {Conn: node.Conn, SlowPolicy: SlowDrop + 1},
		"AcceptRate":  {Conn: node.Conn, AcceptRate: Rate{Burst: 1}},
		"MaxMessage":  {Conn: node.Conn, MaxMessage: 1 << 30},
		"Compression": {Conn: node.Conn, Compression: 10},
		"Stream":      {Conn: node.Conn, Stream: StreamConfig{Replicas: -1}},
	} {
		_, err := New(t.Context(), c)
		words.Invalid(t, field, err)
	}
	s := newSiteOn(t, node, Config{})
	_, err := s.Publish(t.Context(), "a b", nil, "")
	words.Invalid(t, "event", err)
	var noContext context.Context
	words.Invalid(t, "context", s.Shutdown(noContext))
	if s.Ready() != true {
		t.Error("Shutdown without a context has an effect")
	}
}

// Close ends the clients at once, and Shutdown after it waits until everything has ended.
func TestClose(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	sse, err := openSSE(s.url, "topic=a", "")
	must(t, err)
	ws, err := openWS(s.url, "topic=a")
	must(t, err)
	until(t, "both have joined", func() bool { return s.members() == 2 })
	must(t, s.Close())
	until(t, "they are gone", func() bool { return s.Stats().Conns == 0 })
	sse.close()
	ws.close()
	must(t, s.Shutdown(t.Context()))
	if status, _ := s.request("GET", "/events?topic=a", ""); status != http.StatusServiceUnavailable {
		t.Errorf("a client gets %d after Close", status)
	}
}

// Without a Logger, lines go to slog.Default().
func TestDefaultLogger(t *testing.T) {
	c := Config{Conn: newNode(t, NodeConfig{Store: t.TempDir()}).Conn}
	must(t, c.prepare())
	if c.Logger != slog.Default() {
		t.Error("Logger is not slog.Default()")
	}
}
