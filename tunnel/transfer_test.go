package tunnel

import (
	"net"
	"testing"

	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// A function may run before its Park has returned. Unpark in that function still removes the registration, so that
// another lot can park the connection.
func TestMoveBetweenLots(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		from, to := newLot(t, park.Config{Backend: backend}), newLot(t, park.Config{Backend: backend})
		for range 300 {
			server, client := conntest.Pair(t, "tcp")
			f, outcomes := conntest.Reader()
			errs := make(chan error, 1)
			conntest.Send(t, client, "x")
			check.OK(t, from.Park(server, func(conn net.Conn) {
				from.Unpark(conn)
				errs <- to.Park(conn, f)
			}))
			check.OK(t, await.Value(t, errs))
			if o := await.Value(t, outcomes); o.Text != "x" || o.Err != nil {
				t.Fatalf("%+v", o)
			}
			server.Close()
			client.Close()
		}
	})
}
