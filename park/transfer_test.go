package park

import (
	"net"
	"testing"

	"github.com/socknotify/socknotify/internal/backendtest"
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

// The same if the function and its Unpark run between the two steps of Park, as can happen after an idle timeout.
func TestMoveBeforeRegister(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		from, to := newLot(t, Config{Backend: backend}), newLot(t, Config{Backend: backend})
		server, client := pair(t, "tcp")
		none, _ := reader()
		must(t, from.Park(server, none)) // adds a record to the table
		found, err := from.find(server)
		must(t, err)
		base, raw := found.Conn, found.Raw
		must(t, raw.Control(func(number uintptr) {
			entry := from.conns.at(number)
			pc := entry.Load()
			if c := from.take(pc, parked, nil); c.conn == nil {
				t.Fatal("not parked")
			}
			from.leave()
			a := newRegistrar(from)
			a.request = parkRequest{base: base, raw: raw, conn: server, f: none}
			from.enter()
			if was := a.setParked(pc); was != unparked {
				t.Fatal(was)
			}
			if !from.Unpark(server) {
				t.Error("not parked")
			}
			must(t, a.register(pc, number))
			a.deregister(entry, pc, number)
		}))
		f, outcomes := reader()
		must(t, to.Park(server, f))
		send(t, client, "x")
		if o := receive(t, outcomes); o.text != "x" || o.err != nil {
			t.Fatalf("%+v", o)
		}
	})
}
