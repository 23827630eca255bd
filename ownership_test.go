//go:build linux

package socknotify_test

import (
	"errors"
	"runtime"
	"testing"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/sock"
)

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
