package port_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/porttest"
)

// One of two sleepers gives up at the very moment something is queued, or arrives, for one of them:
// it takes it, or the other does.
func TestGivingUpWakesAnother(t *testing.T) {
	rounds := long.Or(400, 20)
	for _, quitter := range []string{"leader", "follower"} {
		for _, how := range []string{"cancel", "timeout"} {
			for _, what := range []string{"post", "post alone", "socket"} {
				t.Run(quitter+"/"+how+"/"+what, func(t *testing.T) {
					porttest.OnEachFresh(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
						x, y := porttest.Pair(t)
						if what != "post alone" {
							porttest.HadSocket(t, p)
						}
						for i := range rounds {
							giveUp(t, p, quitter == "leader", how == "cancel", func() {
								if what != "socket" {
									p.Post("k", uintptr(i))
								} else {
									porttest.Send(t, y)
								}
							}, func() {
								if what == "socket" {
									porttest.Drain(t, x)
									porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "k", EventIn, porttest.OneShot))
								}
							})
						}
					})
				})
			}
		}
	}
}

// giveUp runs one round: two sleepers, one of which gives up while produce makes one notification.
func giveUp(t *testing.T, p *Port[string], leaderQuits, cancel bool, produce, prepare func()) {
	prepare()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	got := make(chan int, 2)
	stay := func() {
		var out [1]Notification[string]
		n, _ := p.Process(nil, out[:], porttest.Soon)
		got <- n
	}
	leave := func() {
		var out [1]Notification[string]
		n, err := 0, error(nil)
		if cancel {
			n, err = p.Wait(ctx, out[:])
		} else {
			n, err = p.Process(nil, out[:], 200*time.Microsecond)
		}
		if n == 0 && !errors.Is(err, context.Canceled) && err != ErrTimeout {
			t.Errorf("quitter: %v", err)
		}
		got <- n
	}
	first, second := stay, leave
	if leaderQuits {
		first, second = leave, stay
	}
	go first()
	if cancel {
		porttest.Waiting(t, p, 1)
	}
	go second()
	if cancel {
		porttest.Waiting(t, p, 2)
		go stop()
	}
	produce()
	a := <-got
	if a == 0 {
		// The quitter left empty-handed; the other must have it or get it.
		if b := <-got; b != 1 {
			t.Fatal("P3, Q1: the notification was lost between two sleepers")
		}
		return
	}
	// One has it. Let the other go, whichever it is.
	stop()
	p.Post("release", 0)
	if b := <-got; b == 0 {
		porttest.Next(t, p) // the quitter did not take the release
	}
}

// Sixteen waiters, one notification after the other, each with no other call awake: none is lost on the
// way from leader to leader.
func TestLeadershipIsHandedOn(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		x, y := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "k", EventIn, porttest.OneShot))
		const waiters, rounds = 16, 300
		turn := make(chan struct{})
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				var out [1]Notification[string]
				for {
					n, err := p.Process(nil, out[:], -1)
					if err != nil {
						return
					}
					if n == 1 {
						turn <- struct{}{}
					}
				}
			})
		}
		for i := range rounds {
			if i%2 == 0 {
				porttest.Send(t, y)
			} else {
				p.Post("k", 0)
			}
			await.Receive(t, fmt.Sprintf("the notification of round %d", i), turn)
			if i%2 == 0 {
				porttest.Drain(t, x)
				porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "k", EventIn, porttest.OneShot))
			}
		}
		p.Close()
		wg.Wait()
	})
}

// What a call that does not sleep leaves in the queue wakes a sleeper, who wakes the next.
func TestQueueLeftBehindWakesTheNext(t *testing.T) {
	for _, sockets := range []bool{false, true} {
		porttest.OnEachFresh(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
			if sockets {
				porttest.HadSocket(t, p)
			}
			const sleepers = 3
			var wg sync.WaitGroup
			for range sleepers {
				wg.Go(func() { porttest.Next(t, p) })
			}
			porttest.Waiting(t, p, sleepers)
			for range 1 + sleepers {
				port.Of(p).Enqueue() // and no waiter is woken
			}
			porttest.Next(t, p)
			wg.Wait()
		})
	}
}

// allWait reports whether n calls wait, and none of them is about to be woken.
func allWait(p *Port[string], n uint64) bool {
	chosen, _ := port.Of(p).Chosen(nil)
	return port.Of(p).Waiters.Count() == n && !chosen
}

// A call that leaves wakes one other at most, and a post wakes one: sixteen waiters that all sleep cost one wake-up for
// each notification.
func TestOneHandOverPerPark(t *testing.T) {
	const waiters, rounds = 16, 200
	for _, what := range []string{"socket", "post"} {
		t.Run(what, func(t *testing.T) {
			porttest.OnEachFresh(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
				socket := what == "socket"
				if socket {
					porttest.HadSocket(t, p)
				}
				var wg sync.WaitGroup
				turn := make(chan struct{})
				for range waiters {
					wg.Go(func() {
						var out [1]Notification[string]
						for {
							if _, err := p.Process(nil, out[:], -1); err != nil {
								return
							}
							turn <- struct{}{}
						}
					})
				}
				x, y := porttest.Pair(t)
				for round := range rounds {
					await.Until(t, "all asleep", func() bool {
						return allWait(p, waiters) && port.Of(p).Led() == socket
					})
					before := p.Stats().Wakeups
					if socket {
						porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "k", EventIn, porttest.OneShot))
						porttest.Send(t, y)
					} else {
						p.Post("k", 0)
					}
					<-turn
					await.Until(t, "asleep again", func() bool { return allWait(p, waiters) })
					if n := p.Stats().Wakeups - before; n != 1 {
						t.Fatalf("round %d: %d wake-ups", round, n)
					}
					if socket {
						porttest.Drain(t, x)
					}
				}
				p.Close()
				wg.Wait()
			})
		})
	}
}

// A leader that finds as much as it has room for wakes one other when it leaves, and none before that, who would
// find that there is a leader, and sleep again.
func TestLeaderWakesItsSuccessorAlone(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		w := port.Of(p).Begin()
		if !port.Of(p).Join(w) {
			t.Fatal("the first to sleep does not lead")
		}
		left := make(chan error)
		go func() {
			var out [1]Notification[string]
			_, err := p.Process(nil, out[:], -1)
			left <- err
		}()
		porttest.Waiting(t, p, 2)
		x, y := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "k", EventIn, porttest.OneShot))
		porttest.Send(t, y)
		var out [1]Notification[string]
		await.Until(t, "the notification", func() bool {
			return port.Of(p).Dequeue(w, port.EntriesOf(unsafe.Pointer(&out[0]), len(out)), true) == 1
		})
		if n := p.Stats().Wakeups; n != 0 {
			t.Errorf("%d wake-ups by the leader's last poll", n)
		}
		port.Of(p).Quit(w)
		port.Of(p).End(w)
		if n := p.Stats().Wakeups; n != 1 {
			t.Errorf("%d wake-ups by a leader", n)
		}
		p.Close()
		if err := <-left; err != ErrClosed {
			t.Error(err)
		}
	})
}

// No call returns without anything before its timeout, however many others are woken, and compete with it.
func TestNoEmptyReturnBeforeTimeout(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		const waiters, rounds = 16, 60
		x, y := porttest.Pair(t)
		porttest.Send(t, y)
		var wg, posting sync.WaitGroup
		for i := range waiters {
			wg.Go(func() {
				timeout := time.Duration(1+i%4) * time.Millisecond
				if i%4 == 3 {
					timeout = -1
				}
				out := make([]Notification[string], 1+i%3)
				for {
					start := time.Now()
					n, err := p.Process(nil, out, timeout)
					took := time.Since(start)
					switch {
					case err == ErrClosed:
						return
					case n > 0 && err == nil:
						for _, nt := range out[:n] {
							if nt.Kind() == KindPosted {
								continue
							}
							again := []Registration[string]{porttest.EnableHandle(x.Handle(), "k", EventIn, porttest.OneShot)}
							if _, err := p.Process(again, nil, 0); err == nil && again[0].Result != nil {
								t.Error(again[0].Result)
							}
						}
					case timeout < 0 || err != ErrTimeout || n != 0 || took < timeout:
						t.Errorf("C4: %d, %v after %v of %v", n, err, took, timeout)
					}
				}
			})
		}
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "k", EventIn, porttest.OneShot))
		for range 2 {
			posting.Go(func() {
				for i := range rounds {
					for range i % 5 {
						p.Post("p", 0)
					}
					await.Pause(time.Duration(i%7) * 100 * time.Microsecond)
				}
			})
		}
		posting.Wait()
		p.Close()
		wg.Wait()
	})
}

// A waiter that was chosen, and returns for another reason without polling, chooses another.
func TestChosenWaiterWakesAnother(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		x, y := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "k", EventIn, porttest.OneShot))
		porttest.Send(t, y)
		var lost [1]backend.Ready
		await.Until(t, "a report, which is dropped", func() bool { return port.Of(p).Core.Poller.Poll(nil, lost[:]) == 1 })
		got := make(chan Notification[string], 1)
		go func() {
			var out [1]Notification[string]
			p.Process(nil, out[:], -1) // a wait that ended would poll once more, and find it
			got <- out[0]
		}()
		porttest.Waiting(t, p, 1)
		w := port.Of(p).Begin()
		port.Of(p).Join(w)
		port.Of(p).Recheck(port.Of(p).Table.Lookup(uint32(x.Handle())), uint32(x.Handle()))
		if _, chosen := port.Of(p).Chosen(w); !chosen {
			t.Fatal("the leader was chosen, and not the follower")
		}
		port.Of(p).Quit(w)
		port.Of(p).End(w)
		if nt := await.Receive(t, "the leader is woken", got); nt.Key != "k" || nt.Events != EventIn {
			t.Errorf("%+v", nt)
		}
	})
}

// Those who sleep on a port that has never had a socket watch the first one that it gets.
func TestFirstSocketWhileOthersWait(t *testing.T) {
	porttest.OnEachFresh(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		const sleepers = 3
		got := make(chan Notification[string], sleepers)
		var wg sync.WaitGroup
		for range sleepers {
			wg.Go(func() {
				var out [1]Notification[string]
				if _, err := p.Process(nil, out[:], -1); err != nil {
					t.Error(err)
				}
				got <- out[0]
			})
		}
		porttest.Waiting(t, p, sleepers)
		x, y := porttest.Pair(t)
		for range sleepers {
			porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "k", EventIn, porttest.OneShot))
			porttest.Send(t, y)
			n := await.Receive(t, "a call that watches the socket", got)
			if n.Key != "k" || n.Events != EventIn {
				t.Errorf("%+v", n)
			}
			porttest.Drain(t, x)
		}
		wg.Wait()
	})
}
