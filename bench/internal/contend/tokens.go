package contend

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tokens are registered sockets of which some are active, in pairs: one of two partners has a byte, and passes it to
// the other when it is notified.
type tokens struct {
	registered, active int
	out, in            []int // a byte written to in[i] is read from out[i]
}

func newTokens(p Params) (*tokens, error) {
	if p.Active < 2 || p.Active%2 != 0 || p.Active > p.Registered {
		return nil, fmt.Errorf("%d active of %d: must be even, and not more", p.Active, p.Registered)
	}
	if p.Batch < 1 {
		return nil, fmt.Errorf("a batch of %d", p.Batch)
	}
	t := &tokens{registered: p.Registered, active: p.Active}
	for range p.Registered {
		s, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("socketpair: %w", err)
		}
		t.out, t.in = append(t.out, s[0]), append(t.in, s[1])
	}
	return t, nil
}

func (t *tokens) close() {
	for _, fd := range slices.Concat(t.out, t.in) {
		unix.Close(fd)
	}
}

// at returns the index of the k-th active socket.
func (t *tokens) at(k int) int { return k * t.registered / t.active }

// each calls f for every socket, with its number among the active ones, or -1.
func (t *tokens) each(f func(fd, k int) error) error {
	k := 0
	for i, fd := range t.out {
		mine := -1
		if k < t.active && t.at(k) == i {
			mine, k = k, k+1
		}
		if err := f(fd, mine); err != nil {
			return err
		}
	}
	return nil
}

// begin writes a byte to one of each two partners.
func (t *tokens) begin() {
	for k := 0; k < t.active; k += 2 {
		t.give(k)
	}
}

var token = [1]byte{'x'}

func (t *tokens) give(k int) {
	syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(t.in[t.at(k)]), uintptr(unsafe.Pointer(&token)), 1, unix.MSG_NOSIGNAL, 0, 0)
}

// take reads the byte of the k-th and reports whether there was one.
func (t *tokens) take(k int, buf *[8]byte) bool {
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(t.out[t.at(k)]), uintptr(unsafe.Pointer(buf)), 8, 0, 0, 0)
	return errno == 0 && n > 0
}

// pass passes the byte of the k-th to its partner, if it has one.
func (t *tokens) pass(k int, buf *[8]byte) int64 {
	if !t.take(k, buf) {
		return 0
	}
	t.give(k ^ 1)
	return 1
}

// A group has the bytes of some pairs, all on the same side. One goroutine at a time passes them on.
type group struct {
	taken       atomic.Bool
	side        int
	first, last int // pairs
	_           [96]byte
}

// base returns the CPU time of passing a byte on without an event core. As many goroutines as handle events do it, in
// batches of the same size, so the sockets move between processors as in the workload. No byte is left afterwards.
func (t *tokens) base(goroutines, batch int) float64 {
	t.begin()
	start := cpu()
	passes := t.passAll(goroutines, batch)
	used := cpu() - start
	t.drain()
	return float64(used) / float64(passes)
}

// passAll passes on the bytes that begin has written, often enough to measure the cost.
func (t *tokens) passAll(goroutines, batch int) int64 {
	const enough = 40_000
	pairs := t.active / 2
	groups := make([]group, (pairs+batch-1)/batch)
	for i := range groups {
		groups[i].first, groups[i].last = i*batch, min((i+1)*batch, pairs)
	}
	var passed atomic.Int64
	work := func() {
		for passed.Add(t.passSome(groups)) < enough {
			runtime.Gosched()
		}
	}
	var running sync.WaitGroup
	for range goroutines - 1 {
		running.Go(work)
	}
	work()
	running.Wait()
	return passed.Load()
}

// passSome runs in one goroutine. The next group is random, so that on two processors half of the groups were last used
// by the other processor, as with a shared epoll descriptor. In a fixed order the processors could synchronize. A
// goroutine that is preempted blocks its group, so it returns before that happens.
func (t *tokens) passSome(groups []group) (passed int64) {
	var buf [8]byte
	for range 64 {
		g := &groups[rand.IntN(len(groups))]
		if g.taken.Swap(true) {
			continue
		}
		for pair := g.first; pair < g.last; pair++ {
			passed += t.pass(2*pair+g.side, &buf)
		}
		g.side ^= 1
		g.taken.Store(false)
	}
	return passed
}

// drain reads all bytes and returns their number.
func (t *tokens) drain() (taken int) {
	var buf [8]byte
	for k := range t.active {
		if t.take(k, &buf) {
			taken++
		}
	}
	return taken
}

// cpu returns the scheduler run time of all threads of this process.
func cpu() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return t.Nano()
}

func switches() int64 {
	var r unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &r)
	return r.Nvcsw + r.Nivcsw
}

// A watch measures this process.
type watch struct {
	start         time.Time
	cpu, switches int64
}

func startWatch() watch { return watch{switches: switches(), start: time.Now(), cpu: cpu()} }

func (w watch) stop(ops int64) Outcome {
	used := cpu() - w.cpu
	return Outcome{
		Ops: float64(ops), CPU: float64(used), Elapsed: float64(time.Since(w.start)),
		Switches: float64(switches() - w.switches),
	}
}

// core returns the run of an event core. The cost to be subtracted is that of one goroutine, or of
// as many as there are waiters.
func core(waiters bool, f func(p Params, t *tokens) (Outcome, error)) run {
	return func(p Params, _ func(string)) (Outcome, error) {
		t, err := newTokens(p)
		if err != nil {
			return Outcome{}, err
		}
		defer t.close()
		if p.Waiters = max(p.Waiters, 1); !waiters {
			p.Waiters = 1
		}
		base := t.base(p.Waiters, p.Batch)
		o, err := f(p, t)
		o.Base = base
		return o, err
	}
}
