package ring

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
)

func callOf(fd int, b []byte, send bool) backend.Exchange {
	return backend.Exchange{Handle: uintptr(fd), Buf: b, Send: send}
}

// fill sends until the socket buffer is full.
func fill(t *testing.T, fd int) {
	t.Helper()
	b := make([]byte, 4096)
	for {
		if _, err := unix.Write(fd, b); err == unix.EAGAIN {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// Every call has the outcome of the system call, with data, without data, at the end, with a full buffer, without a
// peer and without a socket. All calls are made when Exchange returns, which does not wait for those that would block.
func TestExchangeOutcomes(t *testing.T) {
	p := newPoller(t, true)
	ready, peer := pair(t)
	send(t, peer)
	empty, _ := pair(t)
	ended, endedPeer := pair(t)
	unix.Shutdown(endedPeer, unix.SHUT_WR)
	full, _ := pair(t)
	fill(t, full)
	broken, brokenPeer := pair(t)
	unix.Shutdown(brokenPeer, unix.SHUT_RD)
	open, openPeer := pair(t)
	file, err := unix.Open("/dev/zero", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(file) })
	lone, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(lone) })
	blocking, _ := pair(t)
	if err := unix.SetNonblock(blocking, false); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	for name, c := range map[string]struct {
		call backend.Exchange
		n    int
		err  error
	}{
		"data":            {callOf(ready, b, false), 1, nil},
		"none":            {callOf(empty, b, false), 0, unix.EAGAIN},
		"end":             {callOf(ended, b, false), 0, nil},
		"room":            {callOf(open, []byte("hello"), true), 5, nil},
		"no backend":      {callOf(full, b, true), 0, unix.EAGAIN},
		"no peer":         {callOf(broken, b, true), 0, unix.EPIPE},
		"no socket":       {callOf(file, b, false), 0, unix.ENOTSOCK},
		"no descriptor":   {callOf(1<<20, b, false), 0, unix.EBADF},
		"not connected":   {callOf(lone, b, false), 0, unix.ENOTCONN},
		"blocking socket": {callOf(blocking, b, false), 0, unix.EAGAIN},
	} {
		calls := []backend.Exchange{c.call}
		p.Exchange(calls)
		if got := calls[0]; !got.Made || got.N != c.n || !errors.Is(got.Err, c.err) || (got.Err == nil) != (c.err == nil) {
			t.Errorf("%s: made %t, %d, %v; want %d, %v", name, got.Made, got.N, got.Err, c.n, c.err)
		}
	}
	if n, err := unix.Read(openPeer, b); n != 5 || err != nil || string(b[:5]) != "hello" {
		t.Errorf("the peer received %q, %v", b[:max(n, 0)], err)
	}
	r := <-p.exchanges.free
	if r.awaits != 0 {
		t.Errorf("waited %d times for completions of calls that do not block", r.awaits)
	}
	p.exchanges.free <- r
}

// One Exchange of more calls than a ring holds moves every byte to its place.
func TestExchangesOfMany(t *testing.T) {
	p := newPoller(t, true)
	const many = 2*maxExchanges + 7
	var a, b [many]int
	var sends, recvs []backend.Exchange
	for i := range many {
		a[i], b[i] = pair(t)
		sends = append(sends, callOf(b[i], []byte{byte(i), byte(i >> 8)}, true))
		recvs = append(recvs, callOf(a[i], make([]byte, 4), false))
	}
	p.Exchange(sends)
	p.Exchange(recvs)
	for i := range many {
		if s, r := sends[i], recvs[i]; !s.Made || s.N != 2 || !r.Made || r.N != 2 || !bytes.Equal(r.Buf[:2], s.Buf) {
			t.Fatalf("%d: sent %+v, received %+v", i, s, r)
		}
	}
}

// A call is made if and only if the kernel takes its submission. Nothing is left in the ring.
func TestKernelTakesFewerExchanges(t *testing.T) {
	p := newPoller(t, true)
	a, b := pair(t)
	for _, takes := range []uint32{0, 1, 5} {
		for range 8 {
			send(t, b)
		}
		p.Exchange([]backend.Exchange{callOf(b, []byte("x"), true)}) // opens a ring, if there is none
		r := <-p.exchanges.free
		own := r.sqTail
		own.Store(r.tail + takes)
		r.sqTail = new(atomic.Uint32)
		p.exchanges.free <- r
		var calls []backend.Exchange
		for range 8 {
			calls = append(calls, callOf(a, make([]byte, 1), false))
		}
		p.Exchange(calls)
		for i, c := range calls {
			if c.Made != (i < int(takes)) || c.Made && c.N != 1 {
				t.Errorf("%d submissions taken: call %d: %+v", takes, i, c)
			}
		}
		r = <-p.exchanges.free
		r.sqTail = own
		r.sqTail.Store(r.tail)
		p.exchanges.free <- r
		for left := make([]byte, 16); ; {
			if n, _ := unix.Read(a, left); n <= 0 {
				break
			}
		}
	}
}

// Exchange makes no call if no ring can be opened.
func TestExchangeWithoutRing(t *testing.T) {
	p := newPoller(t, true)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	a, b := pair(t)
	send(t, b)
	calls := []backend.Exchange{callOf(a, make([]byte, 1), false)}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	p.Exchange(calls)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if calls[0].Made {
		t.Fatal("a call was made without a ring")
	}
	if p.Exchange(calls); !calls[0].Made || calls[0].N != 1 {
		t.Errorf("%+v, after descriptors were available again", calls[0])
	}
}

// Concurrent Exchanges use a ring each, up to a limit. Those without a ring make no call.
func TestExchangesAtOnce(t *testing.T) {
	p := newPoller(t, true)
	var all sync.WaitGroup
	var missed atomic.Int32
	for range 2 * maxRings {
		a, b := pair(t)
		all.Go(func() {
			for i := range 500 {
				x := []byte{byte(i), byte(rand.IntN(256))}
				calls := []backend.Exchange{callOf(b, x, true)}
				if p.Exchange(calls); !calls[0].Made {
					missed.Add(1)
					continue
				}
				calls = []backend.Exchange{callOf(a, make([]byte, 4), false)}
				for p.Exchange(calls); !calls[0].Made; p.Exchange(calls) {
					missed.Add(1)
				}
				if calls[0].N != 2 || !bytes.Equal(calls[0].Buf[:2], x) {
					t.Errorf("%+v; want %v", calls[0], x)
					return
				}
			}
		})
	}
	all.Wait()
	if n := p.exchanges.made.Load(); n < 1 || int(n) != len(p.exchanges.free) || n > maxRings {
		t.Errorf("%d rings, %d of them free", n, len(p.exchanges.free))
	}
	t.Logf("%d rings; %d Exchanges without a ring", p.exchanges.made.Load(), missed.Load())
}

func TestExchangesAllocateNothing(t *testing.T) {
	p := newPoller(t, true)
	a, b := pair(t)
	calls := []backend.Exchange{callOf(b, []byte("x"), true), callOf(a, make([]byte, 4), false)}
	if n := testing.AllocsPerRun(200, func() { p.Exchange(calls) }); n != 0 {
		t.Errorf("%v allocations each time", n)
	}
}

// BenchmarkExchange makes a send and a receive on each of a number of sockets.
func BenchmarkExchange(b *testing.B) {
	for _, n := range []int{2, 4, 8, 32, 100} {
		for _, together := range []bool{true, false} {
			b.Run(fmt.Sprintf("together=%t/%d", together, n), func(b *testing.B) {
				if err := Probe(); err != nil {
					b.Skip(err)
				}
				p, err := open(true)
				if err != nil {
					b.Fatal(err)
				}
				defer p.Close()
				var sends, recvs []backend.Exchange
				for range n {
					s, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
					if err != nil {
						b.Fatal(err)
					}
					defer unix.Close(s[0])
					defer unix.Close(s[1])
					sends = append(sends, callOf(s[0], make([]byte, 64), true))
					recvs = append(recvs, callOf(s[1], make([]byte, 512), false))
				}
				for b.Loop() {
					if together {
						p.Exchange(sends)
						p.Exchange(recvs)
						continue
					}
					for _, c := range sends {
						unix.RawSyscall6(unix.SYS_SENDTO, c.Handle, uintptr(unsafe.Pointer(unsafe.SliceData(c.Buf))), uintptr(len(c.Buf)), unix.MSG_DONTWAIT, 0, 0)
					}
					for _, c := range recvs {
						unix.RawSyscall6(unix.SYS_RECVFROM, c.Handle, uintptr(unsafe.Pointer(unsafe.SliceData(c.Buf))), uintptr(len(c.Buf)), unix.MSG_DONTWAIT, 0, 0)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*2*n), "ns/call")
			})
		}
	}
}
