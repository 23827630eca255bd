package server_test

import (
	"reflect"
	"testing"

	"github.com/socknotify/socknotify/internal/test/words"
	"github.com/socknotify/socknotify/server"
)

func TestVocabulary(t *testing.T) {
	words.Check(t, reflect.TypeFor[server.Server[int]](), reflect.TypeFor[server.Stats](),
		reflect.TypeFor[server.PacketServer](), reflect.TypeFor[server.PacketStats]())
	for _, folder := range []string{".", "internal/conn", "internal/engine"} {
		words.Keys(t, folder)
	}
	words.Errors(t, server.ErrServerClosed, server.ErrIdle, server.ErrMessageTimeout, server.ErrSlow,
		server.ErrHandshake)
}

// A value that cannot work is ErrInvalid and names the field.
func TestInvalidFields(t *testing.T) {
	h := &handler{t: t}
	for field, s := range map[string]*srv{
		"Handler": {}, "SlowPolicy": {Handler: h, SlowPolicy: server.SlowDrop + 1},
		"Workers": {Handler: h, Workers: -1}, "AcceptRate": {Handler: h, AcceptRate: server.Rate{Burst: 1}},
	} {
		l := listen(t)
		words.Invalid(t, field, s.Serve(l))
	}
}
