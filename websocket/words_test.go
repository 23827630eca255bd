package websocket

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/socknotify/socknotify/internal/test/words"
)

func TestWords(t *testing.T) {
	words.Check(t, reflect.TypeFor[Server](), reflect.TypeFor[Stats]())
	words.Keys(t, ".")
	words.Errors(t, ErrServerClosed, ErrIdle, ErrMessageTimeout, ErrSlow)
	words.Errors(t, ErrClosed)
}

// A negative number means that there is no such limit.
func TestNegative(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		s := &Server{OnMessage: echo, MaxFrame: -1, MaxPings: -1, PingInterval: -1, PongTimeout: -1, CloseTimeout: -1,
			CompressMin: -1, Compression: -1}
		words.Negative(s)
		h := serve(t, kind, s)
		p := h.connect(t, "")
		for range 3 {
			p.send(text("x")...)
			p.wantText("x")
			until(t, "it is parked", func() bool { n := s.Stats(); return kind == "opaque" || n.Parked == 1 && n.Running == 0 })
		}
		p.send(closing(CodeNormal, "")...)
		p.wantClose(CodeNormal)
		p.wantEnd()
	})
}

// A value that cannot work is ErrInvalid and names the field.
func TestInvalidFields(t *testing.T) {
	for field, s := range map[string]*Server{
		"OnMessage": {}, "Compression": {OnMessage: echo, Compression: 10},
		"SlowPolicy":   {OnMessage: echo, SlowPolicy: SlowDrop + 1},
		"Subprotocols": {OnMessage: echo, Subprotocols: []string{"a b"}},
		"Backend":      {OnMessage: echo, Backend: "none such"},
	} {
		s.Logger = new(log).logger()
		r := httptest.NewRequest("GET", "/", nil)
		r.Header = http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}, "Sec-Websocket-Version": {"13"},
			"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
		_, err := s.Upgrade(httptest.NewRecorder(), r)
		words.Invalid(t, field, err)
	}
}

// A Server without a Logger logs a panic.
func TestPanicWithoutLogger(t *testing.T) {
	words.Panic(t, func(value string) {
		s := &Server{OnMessage: func(*Conn, Kind, []byte) error { panic(value) }}
		web := httptest.NewServer(s)
		t.Cleanup(web.Close)
		h := &host{addr: web.Listener.Addr().String(), server: s}
		p := h.connect(t, "")
		p.send(text("x")...)
		p.wantClose(CodeInternalError)
		p.Close()
		until(t, "the panic is counted", func() bool { st := s.Stats(); return st.Panics == 1 && st.Conns == 0 })
		must(t, s.Shutdown(t.Context()))
	})
}
