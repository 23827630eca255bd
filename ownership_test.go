//go:build linux

package socknotify_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/sock"
)

// A socket of one port is closed, kept alive by a duplicate, and its number registered with another
// port: the first lets go of the key at once, and reports the old socket no more (G9, G10, P5).
func TestNumberTakenOverByAnotherPort(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		q, err := New[string](backendtest.With(p.Backend()))
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		x, y := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "old", EventIn, porttest.OneShot))
		number := x.Handle()
		kept, err := unix.FcntlInt(number, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(kept)
		x.Close()
		a, b := porttest.Pair(t)
		if a.Handle() != number {
			t.Fatalf("number %d was not reused: %d", number, a.Handle())
		}
		porttest.Do(t, q, porttest.EnableHandle(number, "new", EventIn, porttest.OneShot))
		if n := p.Stats().Registrations; n != 0 {
			t.Errorf("the first port has %d registrations left", n)
		}
		porttest.Send(t, y)
		porttest.None(t, p)
		porttest.Send(t, b)
		if nt := porttest.Next(t, q); nt.Key != "new" {
			t.Fatalf("got %+v", nt)
		}
		porttest.None(t, p)
	})
}

// Two ports want a reused number at once; one of them knew it by the old socket, and with the same key.
// Exactly one gets it, and hears of the new socket (P5).
func TestTwoPortsWantOneReusedNumber(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		q, err := New[string](backendtest.With(p.Backend()))
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		for round := range long.Or(5000, 100) {
			x, y, err := sock.UnixPair(false)
			if err != nil {
				t.Fatal(err)
			}
			number := x.Handle()
			porttest.Do(t, p, porttest.EnableHandle(number, "k", EventIn, porttest.OneShot))
			x.Close()
			a, b, err := sock.UnixPair(false)
			if err != nil {
				t.Fatal(err)
			}
			if a.Handle() != number {
				t.Fatalf("number %d was not reused: %d", number, a.Handle())
			}
			results, together := make(chan error, 1), make(chan struct{})
			enable := func(p *Port[string]) error {
				regs := []Registration[string]{porttest.EnableHandle(number, "k", EventIn, porttest.OneShot)}
				if _, err := p.Process(regs, nil, 0); err != nil {
					return err
				}
				return regs[0].Result
			}
			go func() {
				together <- struct{}{}
				results <- enable(q)
			}()
			<-together
			for range round % 64 * 8 {
				runtime.KeepAlive(round) // a little later each round
			}
			owner, other := p, q
			mine, theirs := enable(p), <-results
			if mine != nil {
				owner, other = q, p
				mine, theirs = theirs, mine
			}
			if mine != nil || !errors.Is(theirs, ErrOtherPort) {
				t.Fatalf("round %d: %v and %v; want one to succeed", round, mine, theirs)
			}
			porttest.Send(t, b)
			porttest.Next(t, owner)
			porttest.None(t, other)
			porttest.Do(t, owner, porttest.RemoveHandle[string](number))
			porttest.Next(t, owner)
			a.Close()
			b.Close()
			y.Close()
		}
	})
}

// Two calls name a socket of their own port first and one of the other's after. Neither may hold on to the
// first while it waits to hear about the second.
func TestOwnershipNoDeadlock(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		q, err := New[string](backendtest.With(p.Backend()))
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		x, _ := porttest.Pair(t)
		y, _ := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "k", EventIn, porttest.OneShot))
		porttest.Do(t, q, porttest.EnableHandle(y.Handle(), "k", EventIn, porttest.OneShot))
		call := func(p *Port[string], own, others uintptr) error {
			for range long.Or(20_000, 500) {
				regs := []Registration[string]{
					porttest.EnableHandle(own, "k", EventIn, porttest.OneShot),
					porttest.EnableHandle(others, "k", EventIn, porttest.OneShot),
				}
				if _, err := p.Process(regs, nil, 0); err != nil || regs[0].Result != nil || !errors.Is(regs[1].Result, ErrOtherPort) {
					return fmt.Errorf("%v, %v, %v", err, regs[0].Result, regs[1].Result)
				}
			}
			return nil
		}
		results := make(chan error, 2)
		go func() { results <- call(p, x.Handle(), y.Handle()) }()
		go func() { results <- call(q, y.Handle(), x.Handle()) }()
		for range 2 {
			select {
			case err := <-results:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(5 * porttest.Soon): // longer than await.Limit: they have much to do
				t.Fatal("timed out: they wait for each other")
			}
		}
		runtime.KeepAlive(p)
	})
}
