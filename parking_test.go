package socknotify

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// asleep waits until n calls sleep.
func asleep[K comparable](t *testing.T, p *Port[K], n int) {
	t.Helper()
	eventually(t, "calls asleep", func() bool { return p.Stats().Waiting == n })
}

// One of two sleepers gives up at the very moment something is queued, or arrives, for one of them:
// it takes it, or the other does.
func TestGivingUpPassesOn(t *testing.T) {
	const rounds = 400
	for _, quitter := range []string{"leader", "follower"} {
		for _, how := range []string{"cancel", "timeout"} {
			for _, what := range []string{"post", "post alone", "socket"} {
				t.Run(quitter+"/"+how+"/"+what, func(t *testing.T) {
					onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
						x, y := newPair(t)
						p.core.watching.Store(what != "post alone")
						for i := range rounds {
							giveUp(t, p, quitter == "leader", how == "cancel", func() {
								if what != "socket" {
									p.Post("k", uintptr(i))
								} else {
									send(t, y)
								}
							}, func() {
								if what == "socket" {
									drain(t, x)
									do(t, p, Enable(x.Handle(), "k", EventIn, oneShot))
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
		n, _ := p.Wait(out[:], soon)
		got <- n
	}
	leave := func() {
		var out [1]Notification[string]
		n, err := 0, error(nil)
		if cancel {
			n, err = p.WaitContext(ctx, out[:])
		} else {
			n, err = p.Wait(out[:], 200*time.Microsecond)
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
		asleep(t, p, 1)
	}
	go second()
	if cancel {
		asleep(t, p, 2)
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
		next(t, p) // the quitter did not take the release
	}
}

// Sixteen waiters, one notification after the other, each with nobody else awake: none is lost on the
// way from leader to leader.
func TestLeadershipIsHandedOn(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
		x, y := newPair(t)
		do(t, p, Enable(x.Handle(), "k", EventIn, oneShot))
		const waiters, rounds = 16, 300
		turn := make(chan struct{})
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				var out [1]Notification[string]
				for {
					n, err := p.Wait(out[:], -1)
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
				send(t, y)
			} else {
				p.Post("k", 0)
			}
			select {
			case <-turn:
			case <-time.After(soon):
				t.Fatalf("round %d: lost; %+v", i, p.Stats())
			}
			if i%2 == 0 {
				drain(t, x)
				do(t, p, Enable(x.Handle(), "k", EventIn, oneShot))
			}
		}
		p.Close()
		wg.Wait()
	})
}

// Each of several notifications that arrive at once finds a sleeper, though each sleeper takes one
// and never returns.
func TestWorkLeftBehindWakesTheNext(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
		const n = 8
		regs := make([]Registration[string], n)
		for i := range regs {
			x, y := newPair(t)
			send(t, y)
			regs[i] = Enable(x.Handle(), "k", EventIn, oneShot)
		}
		var wg sync.WaitGroup
		for range 2 * n {
			wg.Go(func() {
				var out [1]Notification[string]
				if k, err := p.Wait(out[:], soon); k != 1 || err != nil {
					t.Errorf("P3: %d, %v", k, err)
				}
			})
		}
		asleep(t, p, 2*n)
		if _, err := p.Process(regs, nil, 0); err != nil {
			t.Fatal(err)
		}
		for range n {
			p.Post("p", 0)
		}
		wg.Wait()
	})
}

// Close wakes leader and followers, however they wait, and returns after them.
func TestCloseWakesEverybody(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
		const waiters = 32
		errs := make(chan error, waiters)
		for i := range waiters {
			go func() {
				var out [1]Notification[string]
				var err error
				switch i % 3 {
				case 0:
					_, err = p.Wait(out[:], -1)
				case 1:
					_, err = p.Wait(out[:], time.Hour)
				default:
					_, err = p.WaitContext(t.Context(), out[:])
				}
				errs <- err
			}()
		}
		asleep(t, p, waiters)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		for range waiters {
			if err := <-errs; err != ErrClosed {
				t.Fatalf("P4: %v", err)
			}
		}
		if s := p.Stats(); s.Waiting != 0 {
			t.Fatalf("%d asleep after Close", s.Waiting)
		}
	})
}

// Time-outs of leader and followers are never early.
func TestTimeoutsAreNeverEarly(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
		var wg sync.WaitGroup
		for i := range 24 {
			wg.Go(func() {
				timeout := time.Duration(1+i*3) * time.Millisecond / 2
				var out [1]Notification[string]
				start := time.Now()
				n, err := p.Wait(out[:], timeout)
				if took := time.Since(start); n != 0 || err != ErrTimeout || took < timeout {
					t.Errorf("C4: %d, %v after %v of %v", n, err, took, timeout)
				}
			})
		}
		wg.Wait()
	})
}

// Those who sleep on a port that has never had a socket watch the first one that it gets.
func TestFirstSocketWhileOthersSleep(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
		p.core.watching.Store(false)
		const sleepers = 3
		got := make(chan Notification[string], sleepers)
		var wg sync.WaitGroup
		for range sleepers {
			wg.Go(func() {
				var out [1]Notification[string]
				if _, err := p.Wait(out[:], -1); err != nil {
					t.Error(err)
				}
				got <- out[0]
			})
		}
		asleep(t, p, sleepers)
		x, y := newPair(t)
		for range sleepers {
			do(t, p, Enable(x.Handle(), "k", EventIn, oneShot))
			send(t, y)
			select {
			case n := <-got:
				if n.Key != "k" || n.Events != EventIn {
					t.Errorf("%+v", n)
				}
			case <-time.After(time.Minute):
				t.Fatal("nobody watches the socket")
			}
			drain(t, x)
		}
		wg.Wait()
	})
}
