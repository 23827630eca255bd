package overlapped

import (
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backendtest"
	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/sock"
)

// A batchConn is a socket of the tests below, and the operations on it.
type batchConn struct {
	s, peer    *sock.Socket
	buf        [4]byte
	recv, send Op[*batchConn]
}

func batchConns(t *testing.T, n int) []*batchConn {
	t.Helper()
	var conns []*batchConn
	for range n {
		c := new(batchConn)
		c.s, c.peer = newPair(t)
		conns = append(conns, c)
	}
	return conns
}

// receive starts a receive on every socket.
func receive(t *testing.T, p *socknotify.Port[*batchConn], conns []*batchConn) {
	t.Helper()
	var ops []Request[*batchConn]
	for _, c := range conns {
		ops = append(ops, RecvRequest(c.s, c, c.buf[:], &c.recv))
	}
	begun(t, p, ops)
}

func begun(t *testing.T, p *socknotify.Port[*batchConn], ops []Request[*batchConn]) {
	t.Helper()
	if _, err := Process(p, ops, nil, 0); err != nil {
		t.Fatal(err)
	}
	for i := range ops {
		if ops[i].Result != nil {
			t.Fatal(ops[i].Result)
		}
	}
}

// each waits for so many completions.
func each(t *testing.T, p *socknotify.Port[*batchConn], n int, f func(nt socknotify.Notification[*batchConn])) {
	t.Helper()
	out := make([]socknotify.Notification[*batchConn], n)
	for n > 0 {
		k, err := p.Process(nil, out[:n], soon)
		if err != nil {
			t.Fatalf("%v; %d are missing", err, n)
		}
		for _, nt := range out[:k] {
			f(nt)
		}
		n -= k
	}
}

// batching runs a test on the kernels that make calls together.
func batching(t *testing.T, f func(t *testing.T, p *socknotify.Port[*batchConn], h *backendtest.Hooked)) {
	onEachOf(t, func(t *testing.T, p *socknotify.Port[*batchConn], h *backendtest.Hooked) {
		if port.Of(p).Core.Batcher != nil {
			f(t, p, h)
		}
	})
}

// Calls that the kernel does not make, some of them or all, are made one by one, with the same results.
func TestKernelMakesFewer(t *testing.T) {
	batching(t, func(t *testing.T, p *socknotify.Port[*batchConn], h *backendtest.Hooked) {
		const many = 40
		conns := batchConns(t, many)
		calls, made := 0, 0
		for name, among := range map[string]func([]backend.Exchange) []backend.Exchange{
			"all":   nil,
			"none":  func([]backend.Exchange) []backend.Exchange { return nil },
			"first": func(c []backend.Exchange) []backend.Exchange { return c[:rand.IntN(len(c)+1)] },
			"last":  func(c []backend.Exchange) []backend.Exchange { return c[rand.IntN(len(c)+1):] },
		} {
			before := made
			h.Among = func(c []backend.Exchange) []backend.Exchange {
				calls += len(c)
				if among != nil {
					c = among(c)
				}
				return c
			}
			h.Made = func(c []backend.Exchange) {
				for i := range c {
					if c[i].Made {
						made++
					}
				}
			}
			for range 20 {
				receive(t, p, conns)
				none(t, p)
				for _, c := range conns {
					send(t, c.peer)
				}
				var ops []Request[*batchConn]
				each(t, p, many, func(nt socknotify.Notification[*batchConn]) {
					if n, err := nt.Key.recv.Result(); n != 1 || err != nil || Of(&nt) != &nt.Key.recv || nt.Key.buf[0] != 'x' {
						t.Fatalf("%s: received %d, %v", name, n, err)
					}
					ops = append(ops, SendRequest(nt.Key.s, nt.Key, nt.Key.buf[:1], &nt.Key.send))
				})
				begun(t, p, ops)
				each(t, p, many, func(nt socknotify.Notification[*batchConn]) {
					if n, err := nt.Key.send.Result(); n != 1 || err != nil || Of(&nt) != &nt.Key.send {
						t.Fatalf("%s: sent %d, %v", name, n, err)
					}
				})
				for _, c := range conns {
					drain(t, c.peer)
				}
			}
			if among == nil && made-before < 40*many {
				t.Errorf("%d of %d calls were made together", made-before, calls)
			}
		}
	})
}

// What is closed, canceled or found locked while the kernel makes calls has its completion, and the others theirs.
func TestCallsHeldAcrossOthers(t *testing.T) {
	batching(t, func(t *testing.T, p *socknotify.Port[*batchConn], h *backendtest.Hooked) {
		const many = 12
		conns := batchConns(t, many)
		for round := range 20 {
			receive(t, p, conns)
			none(t, p)
			for _, c := range conns {
				send(t, c.peer)
			}
			closed, canceled := conns[round%many], conns[(round+1)%many]
			done := make(chan struct{})
			h.Made = func([]backend.Exchange) {
				h.Made = nil
				go func() { // both wait for the slots' locks
					defer close(done)
					closed.s.Close()
					if err := Cancel(p, &canceled.recv); err != nil && err != ErrNotInFlight {
						t.Error(err)
					}
				}()
				eventually(t, "it is being closed", func() bool { _, err := closed.s.Hold(); return err != nil })
			}
			each(t, p, many, func(nt socknotify.Notification[*batchConn]) {
				if n, err := Of(&nt).Result(); n != 1 || err != nil || nt.Key.buf[0] != 'x' {
					t.Errorf("received %d, %v", n, err)
				}
			})
			<-done
			h.Made = nil
			none(t, p)
			if _, _, err := port.Of(p).Probe(uint32(conns[0].peer.Handle())); err != nil {
				t.Error(err)
			}
			closed.s, closed.peer = newPair(t)
		}
	})
}

// A slot that is locked while others are gathered is polled again.
func TestGatheringMeetsLockedSlot(t *testing.T) {
	batching(t, func(t *testing.T, p *socknotify.Port[*batchConn], h *backendtest.Hooked) {
		const many = 6
		conns := batchConns(t, many)
		receive(t, p, conns)
		none(t, p)
		for _, c := range conns {
			send(t, c.peer)
		}
		s := port.Of(p).Table.Lookup(uint32(conns[2].s.Handle()))
		done := make(chan struct{})
		h.During(func() {
			s.Mu.Lock()
			go func() {
				defer close(done)
				eventually(t, "it is left for later", func() bool { return s.Word.Load()&port.WRecheck != 0 })
				s.Mu.Unlock()
			}()
		})
		var got []*batchConn
		each(t, p, many, func(nt socknotify.Notification[*batchConn]) { got = append(got, nt.Key) })
		<-done
		for _, c := range conns {
			if !slices.Contains(got, c) {
				t.Error("one has received nothing")
			}
		}
		none(t, p)
	})
}

// A socket that another port has registered in between, or that was closed, harms no other entry.
func TestBatchOfClosedAndOpen(t *testing.T) {
	batching(t, func(t *testing.T, p *socknotify.Port[*batchConn], h *backendtest.Hooked) {
		conns := batchConns(t, 8)
		receive(t, p, conns)
		for _, c := range conns[:4] {
			c.s.Close()
		}
		each(t, p, 4, func(nt socknotify.Notification[*batchConn]) {
			if _, err := Of(&nt).Result(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("completed with %v", err)
			}
		})
		fresh := batchConns(t, 4) // of the same numbers, maybe
		receive(t, p, fresh)
		for _, c := range slices.Concat(conns[4:], fresh) {
			send(t, c.peer)
		}
		each(t, p, 8, func(nt socknotify.Notification[*batchConn]) {
			if n, err := Of(&nt).Result(); n != 1 || err != nil {
				t.Errorf("completed with %d, %v", n, err)
			}
		})
	})
}

// No buffer is taken from a pool by what waits, and few by what is tried in vain.
func TestPooledReceivesWaitWithoutBuffer(t *testing.T) {
	onEachOf(t, func(t *testing.T, p *socknotify.Port[*batchConn], h *backendtest.Hooked) {
		pool := NewBuffers(64)
		conns := batchConns(t, 100)
		const each = 100
		ops := make([]Op[*batchConn], each*len(conns))
		var list []Request[*batchConn]
		for i := range ops {
			c := conns[i%len(conns)]
			list = append(list, RecvPooledRequest(c.s, c, pool, &ops[i]))
		}
		begun(t, p, list)
		none(t, p)
		for i := range ops {
			if ops[i].op.Buf != nil {
				t.Fatalf("receive %d waits with a buffer", i)
			}
		}
		if n := pool.pool.Made.Load(); n > 2*port.MaxJoint {
			t.Errorf("%d buffers for %d receives that wait", n, len(ops))
		}
	})
}
