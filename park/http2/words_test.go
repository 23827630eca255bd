package http2

import (
	"net"
	"net/http"
	"reflect"
	"testing"

	"github.com/socknotify/socknotify/internal/test/words"
	"github.com/socknotify/socknotify/park"
)

// The errors are net/http's, and messages go to its ErrorLog.
func TestWords(t *testing.T) {
	words.Check(t, reflect.TypeFor[Server](), reflect.TypeFor[park.Stats]())
	words.Keys(t, ".")
	words.Errors(t, errClosed, errIdle, errPing)
	words.Invalid(t, "Server", new(Server).ServeConn(t.Context(), nil))
	client, server := net.Pipe()
	defer client.Close()
	s := &Server{Server: new(http.Server), Backend: "none such"}
	words.Invalid(t, "Backend", s.ServeConn(t.Context(), server))
}
