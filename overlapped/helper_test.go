package overlapped

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/sock"
)

// Operations are carried out whether or not anything is dequeued (O13). Where no call dequeues, the
// port's helper does it.

const atOnce = time.Microsecond

// helpAtOnce makes the helper of a port come as soon as it may. carried receives when an operation
// has its result, whether or not its completion is dequeued.
func helpAtOnce[K comparable](p *socknotify.Port[K]) (carried chan unsafe.Pointer) {
	c := port.Of(p).Core
	carried = make(chan unsafe.Pointer, 100)
	c.HelpAfter = atOnce
	c.Completed = func(op unsafe.Pointer) { carried <- op }
	return carried
}

// A helped port has an operation in flight that keeps the helper, and a pair of sockets to find out
// what it has done.
type helped struct {
	p       *socknotify.Port[string]
	carried chan unsafe.Pointer
	probe   [2]*sock.Socket
	ops     [2]Op[string]
	bufs    [2][1]byte
}

func newHelped(t *testing.T, p *socknotify.Port[string]) *helped {
	t.Helper()
	h := &helped{p: p, carried: helpAtOnce(p)}
	idle, _ := newPair(t)
	recv(t, p, idle, h.bufs[0][:], &h.ops[0])
	h.probe[0], h.probe[1] = newPair(t)
	return h
}

// polled waits until the helper has polled: it has carried out a receive, although no call
// dequeues. The completion is dequeued by next or dequeue.
func (h *helped) polled(t *testing.T) {
	t.Helper()
	recv(t, h.p, h.probe[0], h.bufs[1][:], &h.ops[1])
	send(t, h.probe[1])
	await.Receive(t, "the helper carries out a receive", h.carried)
}

// dequeue polls once, and returns the notifications that are no completions.
func (h *helped) dequeue(t *testing.T) (got []socknotify.Notification[string]) {
	t.Helper()
	var out [8]socknotify.Notification[string]
	n, err := h.p.Process(nil, out[:], 0)
	if err != nil && err != socknotify.ErrTimeout {
		t.Fatal(err)
	}
	for _, nt := range out[:n] {
		if Of(&nt) == nil {
			got = append(got, nt)
		}
	}
	return got
}

// want polls once, and wants one notification, or none for EventNone. Windows may report what has
// arrived a little later, so it may be polled again there.
func (h *helped) want(t *testing.T, e socknotify.Events) {
	t.Helper()
	got := h.dequeue(t)
	if runtime.GOOS == "windows" && e != socknotify.EventNone && len(got) == 0 {
		eventually(t, "the notification", func() bool {
			got = h.dequeue(t)
			return len(got) > 0
		})
	}
	if e == socknotify.EventNone && len(got) == 0 {
		return
	}
	if len(got) != 1 || got[0].Events != e || got[0].Key != "k" {
		t.Fatalf("got %+v; want %v", got, e)
	}
}

// What the helper finds for registrations is notified by the next poll, as if the helper had not
// been there.
func TestHelperPutsOffNotifications(t *testing.T) {
	const in = socknotify.EventIn
	edge := socknotify.TriggerEdge
	for _, strict := range []bool{false, true} {
		for _, c := range []struct {
			name    string
			trigger socknotify.Trigger
			again   bool // it is notified again while the condition holds
		}{
			{"one-shot", oneShot, false},
			{"persistent", persistent, true},
			{"edge", edge, false},
			{"edge one-shot", edge | socknotify.TriggerOneShot, false},
		} {
			name := c.name
			if strict {
				name += " strict"
			}
			t.Run(name, func(t *testing.T) {
				onEach(t, func(t *testing.T, p *socknotify.Port[string], _ *backendtest.Hooked) {
					port.Of(p).Core.SetStrict(strict)
					h := newHelped(t, p)
					for _, raw := range []bool{false, true} {
						x, y := newPair(t)
						enable := socknotify.Enable(x, "k", in, c.trigger)
						disable, remove := socknotify.Disable[string](x), socknotify.Remove[string](x)
						if raw {
							enable = porttest.EnableHandle(x.Handle(), "k", in, c.trigger)
							disable = porttest.DisableHandle[string](x.Handle())
							remove = porttest.RemoveHandle[string](x.Handle())
						}
						porttest.Do(t, p, enable)
						drain(t, x) // so that a sock.Socket is known to be drained
						h.want(t, socknotify.EventNone)

						send(t, y)
						h.polled(t)
						h.want(t, in)
						if c.again {
							h.want(t, in)
						}
						drain(t, x)
						h.want(t, socknotify.EventNone)

						// It is enabled again before it is notified.
						porttest.Do(t, p, enable)
						send(t, y)
						h.polled(t)
						porttest.Do(t, p, enable)
						if strict && raw {
							h.dequeue(t) // it may be notified, as it holds at the enable
						} else {
							h.want(t, in)
						}
						drain(t, x)

						found := func() { // by the helper
							porttest.Do(t, p, enable)
							h.want(t, socknotify.EventNone)
							send(t, y)
							h.polled(t)
						}
						// It is disabled before it is notified.
						found()
						porttest.Do(t, p, disable)
						h.want(t, socknotify.EventNone)
						send(t, y)
						h.polled(t)
						h.want(t, socknotify.EventNone)
						drain(t, x)
						porttest.Do(t, p, enable)
						h.want(t, socknotify.EventNone)
						send(t, y)
						h.want(t, in)
						drain(t, x)

						// It is removed before it is notified.
						found()
						porttest.Do(t, p, remove)
						h.want(t, socknotify.EventRemove)
						h.want(t, socknotify.EventNone)
					}
				})
			})
		}
	}
}

func TestHelperAcceptsNothing(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], _ *backendtest.Hooked) {
		h := newHelped(t, p)
		l := porttest.Listener(t)
		must(t, p.Accept(l, "k", 1))
		porttest.Client(t, l)
		h.polled(t)
		for {
			nt := next(t, p)
			if Of(&nt) != nil {
				continue
			}
			s, err := nt.Accepted()
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
			return
		}
	})
}

// An accept is carried out as other operations are. The connection is there before its completion
// is dequeued.
func TestHelperCarriesOutAccepts(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], _ *backendtest.Hooked) {
		carried := helpAtOnce(p)
		l := porttest.Listener(t)
		var a [2]acceptance
		for i := range a {
			a[i].start(t, p, l)
		}
		for i := range a {
			c := porttest.Client(t, l)
			if op := await.Receive(t, "the helper accepts", carried); op != unsafe.Pointer(&a[i].o) {
				t.Fatalf("accept %d was not carried out", i)
			}
			send(t, c)
			eventually(t, "the byte arrives", func() bool {
				n, err := a[i].into.Recv(make([]byte, 1))
				return n == 1 && err == nil
			})
		}
		for i := range a {
			completes(t, p, &a[i].o, 0, nil)
		}
	})
}

// What the helper has put off is not reported to it again and again.
func TestHelperDoesNotSpin(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], hooked *backendtest.Hooked) {
		var reports atomic.Int64
		hooked.After = func(ready []backend.Ready) { reports.Add(int64(len(ready))) }
		const rounds = 100
		x, y := newPair(t)
		var ops [rounds + 1]Op[string]
		var b [rounds + 1]byte
		carried := helpAtOnce(p)
		for i := range ops {
			recv(t, p, x, b[i:i+1], &ops[i])
		}
		for _, trigger := range []socknotify.Trigger{oneShot, persistent, socknotify.TriggerEdge} {
			s, peer := newPair(t)
			porttest.Do(t, p, porttest.EnableHandle(s.Handle(), "k", socknotify.EventsAll, trigger))
			send(t, peer)
		}
		for range rounds {
			send(t, y)
			await.Receive(t, "the helper carries out a receive", carried)
		}
		if n := reports.Load(); n > 2*rounds {
			t.Errorf("%d reports", n)
		}
	})
}

// A poll notifies of a condition that holds, whatever the helper is doing (T4).
func TestPollBesideHelper(t *testing.T) {
	rounds := long.Or(20_000, 1_000)
	onEach(t, func(t *testing.T, p *socknotify.Port[string], _ *backendtest.Hooked) {
		newHelped(t, p)
		x, y := newPair(t)
		send(t, y)
		enable := porttest.EnableHandle(x.Handle(), "k", socknotify.EventIn, oneShot)
		regs := []socknotify.Registration[string]{enable}
		var out [2]socknotify.Notification[string]
		for i := range rounds {
			n, err := p.Process(regs, out[:], 0)
			if n != 1 || err != nil || regs[0].Result != nil {
				t.Fatalf("round %d: %d, %v, %v", i, n, err, regs[0].Result)
			}
			if i%8 == 0 {
				await.UpTo(20 * time.Microsecond)
			}
		}
	})
}

// The helper and a waiter take turns. Whatever comes, before the waiter has the lead or after, the
// waiter has it: no timeout makes up for a wake-up that is lost.
func TestHelperHandsOver(t *testing.T) {
	rounds := long.Or(2_000, 100)
	onEach(t, func(t *testing.T, p *socknotify.Port[string], _ *backendtest.Hooked) {
		h := newHelped(t, p)
		x, y := newPair(t)
		s, peer := newPair(t)
		var o Op[string]
		b := make([]byte, 1)
		enable := porttest.EnableHandle(s.Handle(), "k", socknotify.EventIn, oneShot)
		for round := range rounds {
			h.polled(t)
			completes(t, p, &h.ops[1], 1, nil)
			waited := make(chan socknotify.Notification[string], 1)
			go func() {
				var out [1]socknotify.Notification[string]
				p.Process(nil, out[:], -1)
				waited <- out[0]
			}()
			switch round % 3 {
			case 0:
				porttest.Waiting(t, p, 1)
			case 1:
				await.UpTo(50 * time.Microsecond)
			}
			what := rand.N(3)
			switch what {
			case 0:
				recv(t, p, x, b, &o)
				send(t, y)
			case 1:
				send(t, peer)
				porttest.Do(t, p, enable)
			case 2:
				p.Post("k", 1)
			}
			nt := await.Receive(t, "the waiter has it", waited)
			switch {
			case what == 0 && Of(&nt) == &o:
				<-h.carried
			case what == 1 && nt.Events == socknotify.EventIn:
				drain(t, s)
			case what == 2 && nt.Kind() == socknotify.KindPosted:
			default:
				t.Fatalf("round %d, %d: %+v", round, what, nt)
			}
		}
	})
}

// leading reports whether the helper of any port leads.
func leading() bool {
	stacks := make([]byte, 1<<20)
	return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("port.(*Core).help("))
}

// The goroutine ends with the last operation, however that ends, and with the port.
func TestHelperEnds(t *testing.T) {
	for _, how := range []string{
		"completed", "canceled", "socket closed", "waiter", "port closed", "port dropped",
	} {
		t.Run(how, func(t *testing.T) {
			for _, b := range backendtest.List(t) {
				t.Run(b.Name, func(t *testing.T) {
					p := openPort[string](t, b)
					helpAtOnce(p)
					x, y := newPair(t)
					o, err := new(Op[string]), error(nil)
					recv(t, p, x, make([]byte, 1), o)
					eventually(t, "the helper leads", leading)
					ctx, cancel := context.WithCancel(t.Context())
					var waiter sync.WaitGroup
					dropped := weak.Make(p)
					switch how {
					case "completed":
						send(t, y)
					case "canceled":
						err = Cancel(p, o)
					case "socket closed":
						err = x.Close()
					case "waiter":
						waiter.Go(func() { p.Wait(ctx, make([]socknotify.Notification[string], 1)) })
						porttest.Waiting(t, p, 1)
					case "port closed":
						err = p.Close()
					case "port dropped":
						o, p = nil, nil
						eventually(t, "the port is collected", func() bool {
							runtime.GC()
							return dropped.Value() == nil
						})
					}
					if err != nil {
						t.Fatal(err)
					}
					eventually(t, "the helper ends", func() bool { return !leading() })
					cancel()
					waiter.Wait()
					if p != nil {
						p.Close()
					}
				})
			}
		})
	}
}

// A stressed operation is used again and again.
type stressed struct {
	o    Op[*stressed]
	b    [1]byte
	free chan *stressed // of its socket
}

// Waiters come and go while operations are started and canceled. Each operation that was started
// completes once, and no byte is lost.
func TestHelperStress(t *testing.T) {
	onEachOf(t, func(t *testing.T, p *socknotify.Port[*stressed], _ *backendtest.Hooked) {
		port.Of(p).Core.HelpAfter = atOnce
		rounds := long.Or(5_000, 300)
		var started, completed, received, sent atomic.Int64
		var actors, waiters sync.WaitGroup
		stop := make(chan struct{})
		for range 2 {
			waiters.Go(func() {
				out := make([]socknotify.Notification[*stressed], 3)
				for {
					n, err := p.Process(nil, out, rand.N(2*time.Millisecond))
					if err != nil && err != socknotify.ErrTimeout {
						t.Error(err)
						return
					}
					for _, nt := range out[:n] {
						m, err := nt.Key.o.Result()
						if err != nil && !errors.Is(err, ErrCanceled) {
							t.Error(err)
						}
						received.Add(int64(m))
						completed.Add(1)
						nt.Key.free <- nt.Key
					}
					select {
					case <-stop:
						return
					default:
						await.UpTo(2 * time.Millisecond)
					}
				}
			})
		}
		for range 4 {
			x, y := newPair(t)
			actors.Go(func() {
				const inFlight = 3
				free := make(chan *stressed, inFlight)
				for range inFlight {
					free <- &stressed{free: free}
				}
				for range rounds {
					s := <-free
					if err := Recv(p, x, s, s.b[:], &s.o); err != nil {
						t.Error(err)
						return
					}
					started.Add(1)
					if rand.N(4) == 0 {
						await.UpTo(50 * time.Microsecond)
					}
					if rand.N(3) == 0 {
						if err := Cancel(p, &s.o); err != nil {
							t.Errorf("an operation that no byte was sent to: %v", err)
						}
						continue
					}
					if _, err := y.Send([]byte("x")); err != nil {
						t.Error(err)
						return
					}
					sent.Add(1)
				}
			})
		}
		actors.Wait()
		eventually(t, "every operation completes", func() bool {
			return completed.Load() == started.Load()
		})
		close(stop)
		waiters.Wait()
		if received.Load() != sent.Load() {
			t.Errorf("%d bytes were received of %d", received.Load(), sent.Load())
		}
	})
}

// When Close returns, the buffers are the program's again, whatever the helper was doing: the race
// detector looks.
func TestCloseBesideHelper(t *testing.T) {
	for range long.Or(200, 20) {
		for _, b := range backendtest.List(t) {
			p := openPort[string](t, b)
			port.Of(p).Core.HelpAfter = atOnce
			var ops [4]Op[string]
			var bufs [4][1]byte
			var peers sync.WaitGroup
			for i := range ops {
				x, y := newPair(t)
				recv(t, p, x, bufs[i][:], &ops[i])
				peers.Go(func() {
					await.UpTo(200 * time.Microsecond)
					y.Send([]byte("x"))
				})
			}
			await.UpTo(200 * time.Microsecond)
			must(t, p.Close())
			for i := range bufs {
				bufs[i][0]++
			}
			peers.Wait()
		}
	}
}
