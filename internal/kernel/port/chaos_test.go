package port_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/sock"
)

// chaos is a real kernel that does whatever the seam allows and real ones seldom do: it reports less
// than it could, holds reports back for a while, repeats them, and parks for no time at all.
type chaos struct{ backend.Poller }

func (c chaos) Poll(changes []backend.Change, ready []backend.Ready) int {
	room := ready
	if len(ready) > 1 && rand.IntN(4) == 0 {
		room = ready[:1]
	}
	n := c.Poller.Poll(changes, room)
	for range rand.IntN(4) {
		runtime.Gosched()
	}
	if n > 0 && rand.IntN(32) == 0 {
		await.Pause(50 * time.Microsecond)
	}
	if len(room) < len(ready) && n == len(room) {
		// Full is how a caller learns that there may be more, so a short harvest must be filled.
		n += c.Poller.Poll(nil, ready[n:])
	}
	if c.Edges() && n > 0 && n < len(ready) && rand.IntN(8) == 0 {
		ready[n] = ready[rand.IntN(n)]
		n++
	}
	return n
}

func (c chaos) Park(until time.Time, poll func() bool) error {
	switch rand.IntN(8) {
	case 0:
		return nil
	case 1:
		soonest := time.Now().Add(time.Duration(rand.IntN(200)) * time.Microsecond)
		if until.IsZero() || soonest.Before(until) {
			until = soonest
		}
	}
	return c.Poller.Park(until, poll)
}

// Bytes arrive on sockets of every trigger while the kernel misbehaves within the law. All of them
// must be received, with nothing but notifications to tell when.
func TestChaos(t *testing.T) {
	for _, b := range backendtest.List(t) {
		for _, workers := range []int{2, 16} {
			t.Run(b.Name, func(t *testing.T) {
				k, err := b.Open()
				if err != nil {
					t.Fatal(err)
				}
				p, err := New[*chaosEnd](backendtest.On(chaos{k}, b.Name))
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				runChaos(t, p, workers)
			})
		}
	}
}

type chaosEnd struct {
	in      *sock.Socket
	trigger Trigger
	mu      sync.Mutex // persistent registrations may be at two workers at once
	got     int
}

func runChaos(t *testing.T, p *Port[*chaosEnd], workers int) {
	const ends, each = 24, 400
	triggers := []Trigger{porttest.OneShot, porttest.Persistent, TriggerEdge, TriggerEdge | TriggerOneShot}
	var left atomic.Int64
	left.Store(ends * each)
	var senders, receivers sync.WaitGroup
	all := make([]*chaosEnd, ends)
	for i := range all {
		in, out := porttest.Pair(t)
		e := &chaosEnd{in: in, trigger: triggers[i%len(triggers)]}
		all[i] = e
		porttest.Do(t, p, porttest.EnableHandle(in.Handle(), e, EventIn, e.trigger))
		senders.Go(func() {
			for range each {
				for range await.Attempts(t, "a socket takes a byte") {
					_, err := out.Send([]byte("x"))
					if err == sock.ErrWouldBlock {
						continue
					}
					if err != nil {
						t.Error(err)
					}
					break
				}
				if rand.IntN(8) == 0 {
					await.UpTo(100 * time.Microsecond)
				}
			}
		})
	}
	for range workers {
		receivers.Go(func() {
			regs := make([]Registration[*chaosEnd], 0, 3)
			entries := make([]Notification[*chaosEnd], 3)
			for {
				n, err := p.Process(regs, entries, porttest.Soon)
				if err != nil {
					if err != ErrClosed {
						t.Errorf("%v; %d bytes are still to come", err, left.Load())
					}
					return
				}
				must(t, regs)
				regs = regs[:0]
				for _, nt := range entries[:n] {
					if r, again := nt.Key.receive(t, &left, port.Of(p).Core.OwnEdges); again {
						regs = append(regs, r)
					}
				}
				if left.Load() == 0 {
					go p.Close()
				}
			}
		})
	}
	receivers.Wait()
	senders.Wait()
	for i, e := range all {
		if e.got != each {
			t.Errorf("socket %d (%v): %d of %d bytes", i, e.trigger, e.got, each)
		}
	}
}

// receive does what a handler of the end's trigger does, and says how to go on.
func (e *chaosEnd) receive(t *testing.T, left *atomic.Int64, edges bool) (r Registration[*chaosEnd], again bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	buf := make([]byte, 1+rand.IntN(8))
	drained := false
	for {
		n, err := e.in.Recv(buf)
		if err != nil {
			drained = err == sock.ErrWouldBlock
			if !drained {
				t.Error(err)
			}
			break
		}
		e.got += n
		left.Add(int64(-n))
		if e.trigger&TriggerLevel != 0 && rand.IntN(2) == 0 {
			break // a level is notified again
		}
	}
	r = porttest.EnableHandle(e.in.Handle(), e, EventIn, e.trigger)
	r.Drained = drained
	return r, e.trigger&TriggerOneShot != 0 || e.trigger&TriggerEdge != 0 && !edges
}

func must[K comparable](t *testing.T, regs []Registration[K]) {
	t.Helper()
	for i := range regs {
		if regs[i].Result != nil {
			t.Error(regs[i].Result)
		}
	}
}
