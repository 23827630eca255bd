package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	core "github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/qemu"
)

// Short names for what every case uses.
type (
	port   = socknotify.Port[any]
	note   = socknotify.Notification[any]
	reg    = socknotify.Registration[any]
	events = socknotify.Events
)

const (
	in     = socknotify.EventIn
	out    = socknotify.EventOut
	hangup = socknotify.EventHangup
	bad    = socknotify.EventErr
	gone   = socknotify.EventRemove

	level      = socknotify.TriggerLevel
	edge       = socknotify.TriggerEdge
	oneShot    = socknotify.TriggerOneShot
	persistent = socknotify.TriggerPersistent
)

const (
	// limit is how long something that must come may take, on a machine that has much else to do.
	limit = 2 * time.Minute
	// limitNow is the limit once something has not come, so that a backend that is deaf to one
	// thing does not cost minutes for each case about it.
	limitNow = 10 * time.Second
)

// pause returns how long a case watches for what must not come. A window that is too short can only
// make a case miss a fault, never fail.
func pause() time.Duration { return long.Or(25*time.Millisecond, time.Millisecond) }

// late is set when something that had to come has not.
var late atomic.Bool

// patience is how long what must come may take.
func patience() time.Duration {
	if late.Load() {
		return limitNow
	}
	return limit
}

// overdue is Fatalf for something that did not come in time.
func (e *env) overdue(format string, args ...any) {
	e.Helper()
	late.Store(true)
	e.Fatalf(format, args...)
}

// A key is a completion key with a name for messages.
type key struct{ name string }

func (k *key) String() string { return k.name }

// An env is one case being run.
type env struct {
	*testing.T
	sentence string
	factory  Factory
	tied     bool   // registrations name the sockets of package sock, and not their handles
	stmt     string // the statement of a script, for failures
	owned    map[fd]bool
	cell     *factCell // of a fact
	// trigger and strict are of the programs that use edges (testdata/strict).
	trigger string
	strict  bool
}

// where is what a failure begins with.
func (e *env) where() string {
	if e.stmt != "" {
		return e.stmt + "\n\t"
	}
	return e.sentence + ": "
}

// Fatalf fails the case and names its sentence.
func (e *env) Fatalf(format string, args ...any) {
	e.Helper()
	e.T.Fatalf("%s%s", e.where(), fmt.Sprintf(format, args...))
}

// Errorf is Fatalf that goes on.
func (e *env) Errorf(format string, args ...any) {
	e.Helper()
	e.T.Errorf("%s%s", e.where(), fmt.Sprintf(format, args...))
}

// port makes a port that is closed at the end.
func (e *env) port() *port {
	e.Helper()
	p := e.newPort()
	e.Cleanup(func() {
		if err := p.Close(); err != nil {
			e.Errorf("Close: %v", err)
		}
	})
	return p
}

// newPort makes a port. Its helper stays away, because cases look at what has arrived for
// operations before they dequeue; see the verb unattended.
func (e *env) newPort() *port {
	p := e.factory(e.T)
	core.Of(p).Core.HelpAfter = time.Hour
	return p
}

// A handle is anything with a socket's number.
type handle interface{ Handle() uintptr }

// An fd is a socket that only this package's own helpers know.
type fd uintptr

// Handle is the socket's number.
func (f fd) Handle() uintptr { return uintptr(f) }

// naming names a socket in a registration: by its number, or where the case says so, itself.
func naming(s handle, r reg) reg {
	switch s := s.(type) {
	case *socket:
		if s.tied {
			r.Conn = s.Socket
			return r
		}
	case netConn:
		r.Conn = s.conn
		return r
	case theConn:
		r.Conn = s.Conn
		return r
	}
	r.Handle = s.Handle()
	return r
}

func enable(s handle, k any, filter events, t socknotify.Trigger) reg {
	return naming(s, reg{Key: k, Filter: filter, Op: socknotify.OpEnable, Trigger: t})
}

func disable(s handle) reg { return naming(s, reg{Op: socknotify.OpDisable}) }
func remove(s handle) reg  { return naming(s, reg{Op: socknotify.OpRemove}) }

// drained is enable that vouches for the socket (X5), unless the socket does.
func drained(s handle, k any, filter events, t socknotify.Trigger) reg {
	r := enable(s, k, filter, t)
	r.Drained = r.Conn == nil
	return r
}

// kernelEdges reports whether enabling a drained socket may cost no system call (X5).
func kernelEdges(p *port) bool { return core.Of(p).Core.OwnEdges }

// do processes registrations that must all succeed.
func (e *env) do(p *port, regs ...reg) {
	e.Helper()
	n, err := p.Process(regs, nil, 0)
	if n != 0 || err != nil {
		e.Fatalf("Process without entries = %d, %v; want 0, nil", n, err)
	}
	for i, r := range regs {
		if r.Result != nil {
			e.Fatalf("Result of entry %d (%v): %v", i, r.Op, r.Result)
		}
	}
}

// apply processes one registration, and returns its Result.
func apply(p *port, r reg) error {
	regs := []reg{r}
	_, err := p.Process(regs, nil, 0)
	return cmp.Or(err, regs[0].Result)
}

// refused processes one registration whose Result must be every one of these errors.
func (e *env) refused(p *port, r reg, want ...error) {
	e.Helper()
	err := apply(p, r)
	e.wantErr(err, want...)
	if op := (*socknotify.OpError)(nil); !errors.As(err, &op) || op.Op != r.Op {
		e.Fatalf("Result is a %T, %v; want *OpError of %v", err, err, r.Op)
	}
}

func (e *env) wantErr(err error, want ...error) {
	e.Helper()
	if err == nil {
		e.Fatalf("no error; want %v", want)
	}
	for _, w := range want {
		if w == errReset && qemu.MisnumbersErrors.Here() && !qemu.Is(err, w) {
			e.Skip(qemu.MisnumbersErrors) // the port has not known it for a reset
		}
		if !qemu.Is(err, w) {
			e.Fatalf("error %v; want one that is %q", err, w)
		}
	}
}

// next waits for one notification.
func (e *env) next(p *port) note {
	e.Helper()
	return e.some(p, 1)[0]
}

// some waits for notifications, of which so many fit. One that comes only as the wait ends is late:
// a call polls once more before it gives up, and would find what no wake-up announced.
func (e *env) some(p *port, entries int) []note {
	e.Helper()
	buf := room(entries)
	begin, most := time.Now(), patience()
	n, err := p.Process(nil, buf, most)
	if n == 0 || err != nil {
		e.overdue("Wait = %d, %v; want a notification", n, err)
	}
	if time.Since(begin) >= most {
		e.overdue("a notification of %v came only as the wait ended", buf[0].Key)
	}
	e.untouched(buf)
	return buf[:n]
}

// dequeue makes a call that only dequeues, and returns what came.
func (e *env) dequeue(p *port, timeout time.Duration) []note {
	e.Helper()
	buf := make([]note, 64)
	n, err := p.Process(nil, buf, timeout)
	if n == 0 && !errors.Is(err, socknotify.ErrTimeout) || n > 0 && err != nil {
		e.Fatalf("Wait = %d, %v", n, err)
	}
	return buf[:n]
}

// now dequeues what is there without waiting.
func (e *env) now(p *port) []note {
	e.Helper()
	return e.dequeue(p, 0)
}

// want waits for a notification and checks it.
func (e *env) want(p *port, k any, ev events) {
	e.Helper()
	e.check(e.next(p), k, ev)
}

func (e *env) check(n note, k any, ev events) {
	e.Helper()
	if n.Key != k || n.Events != ev || n.Kind() == socknotify.KindPosted {
		e.Fatalf("notification of %v: %v, posted %t; want %v: %v", n.Key, n.Events, n.Kind() == socknotify.KindPosted, k, ev)
	}
}

// come is now for what must be there already. Where the system tells late it polls until there is
// as much.
func (e *env) come(p *port, count int) []note {
	got := e.now(p)
	if tellsLate {
		e.until("what must be there can be dequeued", func() bool {
			if len(got) < count {
				got = append(got, e.now(p)...)
			}
			return len(got) >= count
		})
	}
	return got
}

// none checks that nothing comes for a while.
func (e *env) none(p *port) {
	e.Helper()
	e.nothing(p, pause())
}

func (e *env) nothing(p *port, timeout time.Duration) {
	e.Helper()
	if got := e.dequeue(p, timeout); len(got) > 0 {
		e.Fatalf("want nothing, got %s", noteTexts(got))
	}
}

// quiet checks that nothing comes, after so many notifications at most, and that the port does not
// spin: it polls its backend a few times while a call waits, and not all the time. A socket that
// was never started is polled after 1, 2, 4 ms and so on.
func (e *env) quiet(p *port, most int) {
	for got, more := 0, most > 0; more; {
		n := len(e.dequeue(p, pause()))
		if got += n; got > most {
			e.Fatalf("%d notifications and more; at most %d can have been made", got, most)
		}
		more = n > 0
	}
	before := e.polls(p)
	e.nothing(p, long.Or(60*time.Millisecond, 8*time.Millisecond))
	e.noSpin(e.polls(p) - before)
}

// noSpin checks how often a port has polled while a call waited.
func (e *env) noSpin(polls uint64) {
	const most = 32
	if polls > most {
		e.Fatalf("the port spins: it polled %d times in vain", polls)
	}
}

// polls counts how often a port has polled its backend.
func (e *env) polls(p *port) uint64 {
	n, ok := backendtest.Polls(p)
	if !ok {
		e.Fatalf("the port's backend does not count: see backendtest.Counted")
	}
	return n
}

// A result is what one wait returned.
type result struct {
	notes []note
	err   error
	took  time.Duration
}

// soonest returns what comes from a channel, where something must come.
func soonest[T any](e *env, ch <-chan T, what string) (v T) {
	e.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience()):
		e.overdue("%s does not end", what)
	}
	return v
}

// still checks that a wait goes on.
func (e *env) still(ch <-chan result) {
	select {
	case r := <-ch:
		e.Fatalf("a wait ended with %v, %v; it must go on", r.notes, r.err)
	case <-time.After(pause()):
	}
}

// async runs f beside the case; the channel gives its error.
func async(f func() error) <-chan error {
	ch := make(chan error, 1)
	go func() { ch <- f() }()
	return ch
}

// end waits for what async started.
func (e *env) end(ch <-chan error, what string) {
	e.Helper()
	if err := soonest(e, ch, what); err != nil {
		e.Fatalf("%s: %v", what, err)
	}
}

// rounds is how often something is repeated under load: with -short less often on Windows, because
// under Wine each system call waits for a server.
func (e *env) rounds(n int) int {
	if testing.Short() && runtime.GOOS == "windows" {
		return n / 10
	}
	return n
}

// until waits for a condition that nothing announces.
func (e *env) until(what string, done func() bool) {
	e.Helper()
	const first, last = 10 * time.Microsecond, 200 * time.Microsecond
	for begin, pause := time.Now(), first; !done(); pause = min(2*pause, last) {
		time.Sleep(pause)
		if e.Failed() {
			e.FailNow() // beside this statement
		}
		if time.Since(begin) > patience() {
			e.overdue("still not so: %s", what)
		}
	}
}

// parked waits until so many calls sleep inside the port.
func (e *env) parked(p *port, n int) {
	e.Helper()
	e.until("waiters are asleep", func() bool { return p.Stats().Waiting == n })
}

// collected waits until the garbage collector has found something unreachable.
func (e *env) collected(what string, isNil func() bool) {
	e.Helper()
	e.until(what+" is released", func() bool {
		runtime.GC()
		return isNil()
	})
}

// endOfStream is what receiveAll returns at the end of a stream.
var endOfStream = io.EOF

var errCause = errors.New("the cause")

// never checks that what comes in a while does not have these events.
func (e *env) never(p *port, ev events) {
	for range 5 {
		for _, got := range e.dequeue(p, pause()/5) {
			if got.Events&ev != 0 {
				e.Fatalf("notification %v; %v must not come", got.Events, ev)
			}
		}
	}
}

// workers dequeues in so many goroutines until stop, which closes the port.
func (e *env) workers(p *port, count, entries int, handle func(note)) (stop func()) {
	var wg sync.WaitGroup
	errs := make(chan error, count)
	for range count {
		wg.Go(func() {
			buf := make([]note, entries)
			for {
				n, err := p.Process(nil, buf, -1)
				if err != nil {
					if !errors.Is(err, socknotify.ErrClosed) {
						errs <- err
					}
					return
				}
				for _, got := range buf[:n] {
					handle(got)
				}
			}
		})
	}
	return func() {
		e.Helper()
		if err := p.Close(); err != nil {
			e.Errorf("Close: %v", err)
		}
		e.end(async(func() error { wg.Wait(); return nil }), "closing the port under its waiters")
		close(errs)
		for err := range errs {
			e.Errorf("Wait: %v", err)
		}
	}
}
