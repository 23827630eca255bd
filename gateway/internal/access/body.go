package access

import (
	"net/http"
	"time"
)

// BodyTimeout bounds the time that a client takes to send the body of a request, so that one that
// has stopped keeps no goroutine.
var BodyTimeout = 30 * time.Second

// BoundBody bounds the time in which the body of a request comes, also one that is not wanted:
// net/http reads it before the answer. A WebSocket of HTTP/2 is a body without an end.
func BoundBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 || r.ProtoMajor > 1 && r.Method == http.MethodConnect {
		return
	}
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(BodyTimeout)) // not every http.ResponseWriter has one
}
