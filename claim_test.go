//go:build linux

package socknotify

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A socket of one port is closed, kept alive by a duplicate, and its number registered with another
// port: the first lets go of the key at once, and reports the old socket no more (G9, G10, P5).
func TestNumberTakenOverByAnotherPort(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
		q, err := New[string](WithBackend(p.Backend()))
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		x, y := newPair(t)
		do(t, p, Enable(x.Handle(), "old", EventIn, oneShot))
		number := x.Handle()
		kept, err := unix.FcntlInt(number, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(kept)
		x.Close()
		a, b := newPair(t)
		if a.Handle() != number {
			t.Fatalf("number %d was not reused: %d", number, a.Handle())
		}
		do(t, q, Enable(number, "new", EventIn, oneShot))
		if n := p.Stats().Registrations; n != 0 {
			t.Errorf("the first port has %d registrations left", n)
		}
		send(t, y)
		none(t, p)
		send(t, b)
		if nt := next(t, q); nt.Key != "new" {
			t.Fatalf("got %+v", nt)
		}
		none(t, p)
	})
}
