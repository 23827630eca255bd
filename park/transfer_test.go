package park

import (
	"net"
	"testing"

	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// A function may run before its Park has returned. Unpark in that function still removes the registration, so that
// another lot can park the connection.
func TestMoveBetweenLots(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		from, to := newLot(t, Config{Backend: backend}), newLot(t, Config{Backend: backend})
		for range 300 {
			server, client := pair(t, "tcp")
			f, outcomes := reader()
			errs := make(chan error, 1)
			send(t, client, "x")
			must(t, from.Park(server, func(conn net.Conn) {
				from.Unpark(conn)
				errs <- to.Park(conn, f)
			}))
			must(t, receive(t, errs))
			if o := receive(t, outcomes); o.text != "x" || o.err != nil {
				t.Fatalf("%+v", o)
			}
			server.Close()
			client.Close()
		}
	})
}
