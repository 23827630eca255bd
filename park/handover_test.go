package park

import (
	"net"
	"testing"

	"github.com/socknotify/socknotify/internal/backendtest"
)

// A function may run before the Park that it is of has returned, and Unpark then ends that all the same, so that
// another lot can have the connection.
func TestHandOver(t *testing.T) {
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
			must(t, get(t, errs))
			if o := get(t, outcomes); o.text != "x" || o.err != nil {
				t.Fatalf("%+v", o)
			}
			server.Close()
			client.Close()
		}
	})
}

// The same where the function and its Unpark come between the two steps of a Park, as a time-out can have it.
func TestHandOverUnwatched(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		from, to := newLot(t, Config{Backend: backend}), newLot(t, Config{Backend: backend})
		server, client := pair(t, "tcp")
		none, _ := reader()
		must(t, from.Park(server, none)) // which gives it a spot
		base, _, err := descend(server)
		must(t, err)
		raw, err := base.SyscallConn()
		must(t, err)
		must(t, raw.Control(func(number uintptr) {
			place := from.spots.at(number)
			s := place.Load()
			if c := from.take(s, parked, nil); c.conn == nil {
				t.Fatal("not parked")
			}
			from.leave()
			a := newArmer(from)
			a.parking = parking{base: base, raw: raw, conn: server, f: none}
			from.enter()
			if was := a.occupy(s); was != vacant {
				t.Fatal(was)
			}
			if !from.Unpark(server) {
				t.Error("not parked")
			}
			must(t, a.watch(s, number))
			a.unwatch(place, s, number)
		}))
		f, outcomes := reader()
		must(t, to.Park(server, f))
		send(t, client, "x")
		if o := get(t, outcomes); o.text != "x" || o.err != nil {
			t.Fatalf("%+v", o)
		}
	})
}
