package socknotify_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/sock"
)

const oneShot = TriggerLevel | TriggerOneShot

// eachBackend runs a benchmark on every kernel.
func eachBackend(b *testing.B, f func(b *testing.B, p *Port[int])) {
	for _, name := range Backends() {
		b.Run(name, func(b *testing.B) {
			p, err := New[int](WithBackend(name))
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			b.ReportAllocs()
			f(b, p)
		})
	}
}

func pair(tb testing.TB) (x, y *sock.Socket) {
	tb.Helper()
	x, y, err := backendtest.Pair()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { x.Close(); y.Close() })
	return x, y
}

// enable is Enable of a socket's handle, for which the program says whether it was drained.
func enable[K comparable](s *sock.Socket, key K, filter Events, trigger Trigger) Registration[K] {
	return Registration[K]{Handle: s.Handle(), Key: key, Filter: filter, Op: OpEnable, Trigger: trigger}
}

// must fails on the Result of an entry.
func must[K comparable](tb testing.TB, regs []Registration[K]) {
	for i := range regs {
		if regs[i].Result != nil {
			tb.Fatal(regs[i].Result)
		}
	}
}

// One call enables a ready socket and dequeues its notification.
func BenchmarkEnableDequeueReady(b *testing.B) {
	eachBackend(b, func(b *testing.B, p *Port[int]) {
		x, y := pair(b)
		y.Send([]byte("x"))
		regs := []Registration[int]{enable(x, 1, EventIn, oneShot)}
		var out [4]Notification[int]
		for b.Loop() {
			if n, err := p.Process(regs, out[:], -1); n != 1 || err != nil {
				b.Fatal(n, err)
			}
		}
		must(b, regs)
	})
}

// The cost of enabling again, without data on the way.
func BenchmarkRearm(b *testing.B) {
	for _, drained := range []bool{false, true} {
		b.Run(fmt.Sprintf("drained=%v", drained), func(b *testing.B) {
			eachBackend(b, func(b *testing.B, p *Port[int]) {
				x, _ := pair(b)
				regs := []Registration[int]{enable(x, 1, EventIn, oneShot)}
				p.Process(regs, nil, 0)
				must(b, regs)
				regs[0].Drained = drained
				for b.Loop() {
					p.Process(regs, nil, 0)
				}
				must(b, regs)
			})
		})
	}
}

// A whole turn of the one-shot pattern: send, dequeue and re-arm, receive.
func BenchmarkOneShotTurn(b *testing.B) {
	for _, drained := range []bool{false, true} {
		b.Run(fmt.Sprintf("drained=%v", drained), func(b *testing.B) {
			eachBackend(b, func(b *testing.B, p *Port[int]) {
				x, y := pair(b)
				regs := []Registration[int]{enable(x, 1, EventIn, oneShot)}
				msg, buf := []byte("x"), make([]byte, 16)
				var out [4]Notification[int]
				for b.Loop() {
					y.Send(msg)
					if n, err := p.Process(regs, out[:], -1); n != 1 || err != nil {
						b.Fatal(n, err)
					}
					regs[0].Drained = drained
					x.Recv(buf)
				}
				must(b, regs)
			})
		})
	}
}

// The same over TCP by a socket of package sock, with an answer: what a request costs a server.
func BenchmarkEchoTurn(b *testing.B) {
	eachBackend(b, func(b *testing.B, p *Port[int]) {
		l := benchListener(b)
		y, err := sock.New(sock.TCP4)
		if err != nil {
			b.Fatal(err)
		}
		defer y.Close()
		if err := y.Connect(l.LocalAddr()); err != nil && err != sock.ErrWouldBlock {
			b.Fatal(err)
		}
		var x sock.Socket
		for l.AcceptInto(&x) != nil {
			continue
		}
		defer x.Close()
		regs := []Registration[int]{Enable(&x, 1, EventIn, oneShot)}
		msg, buf := make([]byte, 64), make([]byte, 4096)
		var out [4]Notification[int]
		for b.Loop() {
			y.Send(msg)
			if n, err := p.Process(regs, out[:], -1); n != 1 || err != nil {
				b.Fatal(n, err)
			}
			n, _ := x.Recv(buf)
			x.Send(buf[:n])
			y.Recv(buf)
		}
		must(b, regs)
		s := p.Stats()
		b.ReportMetric(float64(s.Rearms)/float64(s.Notifications), "rearms/op")
	})
}

func BenchmarkPostWait(b *testing.B) {
	eachBackend(b, func(b *testing.B, p *Port[int]) {
		var out [1]Notification[int]
		for b.Loop() {
			p.Post(1, 2)
			if n, err := p.Process(nil, out[:], -1); n != 1 || err != nil {
				b.Fatal(n, err)
			}
		}
	})
}

// Eight goroutines for each processor post to one port and dequeue from it.
func BenchmarkPostWaitMany(b *testing.B) {
	eachBackend(b, func(b *testing.B, p *Port[int]) {
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			var out [1]Notification[int]
			for pb.Next() {
				p.Post(1, 2)
				if n, err := p.Process(nil, out[:], -1); n != 1 || err != nil {
					b.Error(n, err)
					return
				}
			}
		})
	})
}

// Eight goroutines for each processor post to one port, and four others dequeue from it.
func BenchmarkPostMany(b *testing.B) {
	eachBackend(b, func(b *testing.B, p *Port[int]) {
		var waiters sync.WaitGroup
		for range 4 {
			waiters.Go(func() {
				var out [16]Notification[int]
				for {
					if _, err := p.Process(nil, out[:], -1); err != nil {
						return
					}
				}
			})
		}
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				p.Post(1, 2)
			}
		})
		p.Close()
		waiters.Wait()
	})
}

// Two goroutines post to each other's port; each is parked when its post comes.
func BenchmarkPostWake(b *testing.B) {
	eachBackend(b, func(b *testing.B, p *Port[int]) {
		q, err := New[int](WithBackend(p.Backend()))
		if err != nil {
			b.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			var out [1]Notification[int]
			for {
				if _, err := q.Process(nil, out[:], -1); err != nil {
					return
				}
				p.Post(1, 2)
			}
		}()
		var out [1]Notification[int]
		for b.Loop() {
			q.Post(1, 2)
			p.Process(nil, out[:], -1)
		}
		q.Close()
		<-done
	})
}

// Sockets that stay readable, one-shot: each call arms the three it was given last and dequeues three.
// Nothing is received or sent, so what is measured is the port and the kernel's readiness queue, not
// how two processors share sockets and their buffers.
func BenchmarkDequeue(b *testing.B) {
	for _, waiters := range []int{1, 2, 16} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			eachBackend(b, func(b *testing.B, p *Port[int]) { benchDequeue(b, p, waiters) })
		})
	}
}

func benchDequeue(b *testing.B, p *Port[int], waiters int) {
	const sockets = 128
	var ends [sockets]*sock.Socket
	for i := range ends {
		x, y := pair(b)
		y.Send([]byte("x"))
		ends[i] = x
		regs := []Registration[int]{enable(x, i, EventIn, oneShot)}
		p.Process(regs, nil, 0)
		must(b, regs)
	}
	var events atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	start := time.Now()
	for range waiters {
		wg.Go(func() {
			regs, out := make([]Registration[int], 0, 3), make([]Notification[int], 3)
			for events.Load() < int64(b.N) {
				n, err := p.Process(regs, out, -1)
				if err != nil {
					b.Error(err)
				}
				events.Add(int64(n))
				regs = regs[:0]
				for _, nt := range out[:n] {
					regs = append(regs, enable(ends[nt.Key], nt.Key, EventIn, oneShot))
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(events.Load())/time.Since(start).Seconds(), "events/s")
}
