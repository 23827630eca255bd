package afd

import (
	"fmt"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	testawait "github.com/socknotify/socknotify/internal/test/await"
)

// polls counts the outstanding polls of a socket.
func polls(p *Poller, s socket) (ready, witness int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.groups {
		for i := range g.entries {
			e := &g.entries[i]
			if e.base != uintptr(s) {
				continue
			}
			if e.ready.out {
				ready++
			}
			if e.witness.out {
				witness++
			}
		}
	}
	return ready, witness
}

// A removed socket is added again only after its earlier polls have ended, because Windows confuses two polls of one
// socket that complete on one port. Reports of other sockets that come in between are not lost.
func TestAddedAgain(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	x, y := pair(t)
	apply(t, p, backend.Add, x, 1000, backend.In)
	apply(t, p, backend.Add, a, 1, backend.In)
	for i := range uint64(100) {
		if i == 50 {
			write(t, y)
		}
		apply(t, p, backend.Delete, a, 0, 0)
		apply(t, p, backend.Add, a, 2+i, backend.In)
		if r, w := polls(p, a); r > 1 || w > 1 {
			t.Fatalf("%d polls for readiness and %d witnesses at once", r, w)
		}
	}
	expect(t, p, 1000, backend.In)
	write(t, b)
	expect(t, p, 101, backend.In)
}

// A packet of another socket that Add takes from the port ends a Park.
func TestAddedAgainBesideParked(t *testing.T) {
	p := open(t)
	a, _ := pair(t)
	x, y := pair(t)
	apply(t, p, backend.Add, x, 0, backend.In)
	apply(t, p, backend.Add, a, 1, backend.In)
	for i := range uint64(50) {
		parked, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			p.Park(time.Time{}, func() bool { close(parked); return false })
		}()
		<-parked
		write(t, y)
		apply(t, p, backend.Delete, a, 0, 0)
		apply(t, p, backend.Add, a, 1, backend.In)
		testawait.Receive(t, fmt.Sprintf("round %d: Park returns", i), over)
		expect(t, p, i, backend.In)
		if _, err := read(x); err != nil {
			t.Fatal(err)
		}
		apply(t, p, backend.Set, x, i+1, backend.In)
	}
}
