//go:build unix

package kqueue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// errno converts an error number of the model to the system's, which may differ.
func errno(e int64) int64 {
	switch e {
	case noEnt:
		return int64(unix.ENOENT)
	case badF:
		return int64(unix.EBADF)
	}
	return e
}

// A world is a queue on a model.
type world struct {
	*model
	q     queue
	fail  error // the error of the next call of the kernel as a whole
	calls int
}

func newWorld() *world {
	w := &world{model: newModel()}
	w.q.sys = w
	return w
}

func (w *world) kevent(list, out []kevent, silent bool) (int, error) {
	w.calls++
	if w.fail != nil {
		err := w.fail
		w.fail = nil
		return -1, err
	}
	n, err := w.model.kevent(list, out, silent)
	for i := range n {
		if out[i].flags == evError {
			out[i].data = errno(out[i].data)
		}
	}
	return n, err
}

// change changes a socket and makes its knotes poll.
func (m *model) change(fd int, f func(*socket)) {
	f(m.sockets[fd])
	m.poll([2]int{fd, int(reads)})
	m.poll([2]int{fd, int(writes)})
}

// kevent is the system call of the model.
func (m *model) kevent(list, out []kevent, silent bool) (int, error) {
	returned := m.submit(list)
	if len(returned) > 0 || silent {
		return copy(out, returned), nil
	}
	n := 0
	for _, at := range slices.Clone(m.queued) {
		k := m.knotes[at]
		if n == len(out) {
			break
		}
		if !k.enabled {
			continue
		}
		k.active = false
		m.queued = slices.DeleteFunc(m.queued, func(x [2]int) bool { return x == at })
		if !k.holds(filter(at[1])) {
			continue
		}
		e := kevent{fd: at[0], filter: filter(at[1])}
		if e.filter == reads {
			e.data = k.socket.data
		}
		if k.socket.eof && (e.filter == reads || k.socket.errno != 0) {
			e.flags, e.fflags = evEOF, k.socket.errno
		}
		out[n] = e
		n++
	}
	return n, nil
}

func (w *world) pending(fd int) (backend.Mask, bool) {
	s := w.sockets[fd]
	switch {
	case s == nil:
		return 0, false
	case s.data > 0:
		return backend.In, true
	case s.errno != 0:
		return backend.Err, true
	case s.eof:
		return backend.In | backend.PeerClosed, true
	}
	return 0, true
}

func (w *world) open(fd int) error {
	if w.sockets[fd] == nil {
		return unix.EBADF
	}
	return nil
}

func (w *world) do(action backend.Action, fd int, token uint64, interest backend.Mask) (backend.Status, error) {
	c := []backend.Change{{Handle: uintptr(fd), Token: token, Interest: interest, Action: action}}
	w.q.Poll(c, nil)
	return c[0].Status, c[0].Err
}

func (w *world) harvest(room int) []backend.Ready {
	ready := make([]backend.Ready, room)
	return ready[:w.q.Poll(nil, ready)]
}

func TestQueueStatus(t *testing.T) {
	for kind := range 4 {
		w := newWorld()
		w.receipts, w.lenient = kind&1 != 0, kind&2 != 0
		w.sockets[4] = &socket{}
		expect := func(what string, action backend.Action, fd int, want backend.Status) {
			t.Helper()
			if got, err := w.do(action, fd, 1, forBoth); got != want || (err == nil) != (want == backend.Done) {
				t.Errorf("%s: %d, %v; want %d", what, got, err, want)
			}
		}
		for _, action := range []backend.Action{backend.Set, backend.Suppress, backend.Delete} {
			expect("unknown", action, 4, backend.Absent)
			expect("closed", action, 9, backend.Bad)
			expect("no number", action, -1, backend.Bad)
		}
		expect("closed", backend.Add, 9, backend.Bad)
		expect("no number", backend.Add, -1, backend.Bad)
		expect("Add", backend.Add, 4, backend.Done)
		expect("again", backend.Add, 4, backend.Present)
		expect("Set", backend.Set, 4, backend.Done)
		expect("Suppress", backend.Suppress, 4, backend.Done)
		expect("suppressed", backend.Add, 4, backend.Present)
		expect("Delete", backend.Delete, 4, backend.Done)
		expect("gone", backend.Delete, 4, backend.Absent)
		for _, action := range []backend.Action{backend.Set, backend.Suppress, backend.Delete} {
			expect("Add", backend.Add, 4, backend.Done)
			w.reuse(4, &socket{data: 1})
			expect("used again", action, 4, backend.Absent)
			if w.q.table.get(4) != nil {
				t.Error("remembered after it was found gone")
			}
			if r := w.harvest(4); len(r) != 0 {
				t.Errorf("report of another socket: %+v", r)
			}
			expect("Add", backend.Add, 4, backend.Done)
			w.reuse(4, &socket{})
			expect("the next", backend.Add, 4, backend.Done)
			w.closed(4)
			expect("closed", action, 4, backend.Bad)
			w.sockets[4] = &socket{}
		}
		if len(w.knotes) != 0 {
			t.Errorf("left %v", w.knotes)
		}
	}
}

func TestQueueHas(t *testing.T) {
	w := newWorld()
	w.sockets[4], w.sockets[5] = &socket{room: true}, &socket{}
	expect := func(what string, fd int, want bool, bad bool) {
		t.Helper()
		if has, err := w.q.has(fd); has != want || (err != nil) != bad {
			t.Errorf("%s: %v, %v", what, has, err)
		}
	}
	w.do(backend.Add, 4, 1, forBoth)
	expect("watched", 4, true, false)
	expect("not watched", 5, false, false)
	expect("closed", 6, false, true)
	w.do(backend.Suppress, 4, 2, 0)
	expect("suppressed", 4, true, false)
	if r := w.harvest(4); len(r) != 0 {
		t.Errorf("has enabled a suppressed socket: %+v", r)
	}
	w.reuse(4, &socket{})
	expect("used again", 4, false, false)
	if s, _ := w.do(backend.Set, 4, 3, forBoth); s != backend.Absent {
		t.Errorf("then set: %d", s)
	}
}

// If a call fails as a whole, the changes are refused, and earlier registrations are unchanged.
func TestQueueRefused(t *testing.T) {
	w := newWorld()
	w.sockets[4] = &socket{data: 1}
	w.fail = unix.ENOMEM
	if s, err := w.do(backend.Add, 4, 1, forIn); s != backend.Refused || err != unix.ENOMEM || len(w.knotes) != 0 {
		t.Fatalf("Add: %d, %v; knotes %v", s, err, w.knotes)
	}
	w.do(backend.Add, 4, 2, forIn)
	for _, action := range []backend.Action{backend.Set, backend.Suppress, backend.Delete} {
		w.fail = unix.ENOMEM
		if s, err := w.do(action, 4, 3, forIn); s != backend.Refused || err != unix.ENOMEM {
			t.Fatalf("action %d: %d, %v", action, s, err)
		}
	}
	w.fail = unix.ENOMEM
	if has, _ := w.q.has(4); !has {
		t.Error("a kernel that cannot be asked has lost the socket")
	}
	if r := w.harvest(4); len(r) != 1 || r[0].Token != 2 {
		t.Errorf("reports %+v", r)
	}
	w.fail = unix.EINTR
	if s, err := w.do(backend.Suppress, 4, 4, 0); s != backend.Done || err != nil {
		t.Errorf("interrupted: %d, %v", s, err)
	}
	w.fail = unix.EINTR
	w.do(backend.Set, 4, 5, forIn) // the model has not made it
	w.do(backend.Set, 4, 6, forIn)
	w.fail = unix.EINTR
	if r := w.harvest(4); len(r) != 1 || r[0].Token != 6 {
		t.Errorf("interrupted harvest: %+v", r)
	}
}

// Changes and harvest are one call if ready has room for all errors, and two if a change fails.
func TestQueueOneCall(t *testing.T) {
	for _, c := range []struct {
		room, calls int
		second      int // the number of the second change
	}{{16, 1, 5}, {4, 1, 5}, {3, 2, 5}, {16, 2, 6}} {
		w := newWorld()
		w.sockets[4], w.sockets[5], w.sockets[6] = &socket{data: 1}, &socket{data: 1}, &socket{data: 1}
		w.do(backend.Add, 4, 1, forIn)
		w.do(backend.Add, 5, 2, forIn)
		w.harvest(8)
		w.calls = 0
		list := []backend.Change{
			{Handle: 4, Token: 3, Interest: forIn, Action: backend.Set},
			{Handle: uintptr(c.second), Token: 4, Interest: forIn, Action: backend.Set},
		}
		ready := make([]backend.Ready, c.room)
		n := w.q.Poll(list, ready)
		if w.calls != c.calls {
			t.Errorf("%+v: %d calls", c, w.calls)
		}
		want := []backend.Ready{{Token: 3, Mask: in | urgent}, {Token: 4, Mask: in | urgent}}
		if c.second == 6 {
			want = want[:1]
		}
		if !slices.Equal(ready[:n], want) {
			t.Errorf("%+v: %+v", c, ready[:n])
		}
	}
}

// A call that fills its room with events may have left some.
func TestQueueOneCallAndMore(t *testing.T) {
	w := newWorld()
	for fd := range 3 {
		w.sockets[fd] = &socket{data: 1, room: true}
		w.do(backend.Add, fd, uint64(fd), forBoth)
	}
	ready := make([]backend.Ready, 4)
	list := []backend.Change{{Handle: 0, Token: 9, Interest: forBoth, Action: backend.Set}}
	if n := w.q.Poll(list, ready); n != 3 {
		t.Errorf("reports %+v", ready[:n])
	}
}

// A harvest with room left continues after kernel events that merge into one report or make none.
func TestQueueHarvestsOn(t *testing.T) {
	w := newWorld()
	for fd := range 40 {
		w.sockets[fd] = &socket{data: 1, room: true}
		interest := forBoth
		if fd%2 == 0 {
			interest = forNone
		}
		w.do(backend.Add, fd, uint64(fd), interest)
		if fd%2 == 0 {
			w.change(fd, func(s *socket) { s.data = tooMuch }) // a full buffer makes no report
		}
	}
	seen := 0
	for {
		r := w.harvest(7)
		for _, x := range r {
			seen++
			if x.Token%2 == 0 {
				t.Errorf("report %+v", x)
			}
		}
		if len(r) < 7 {
			break
		}
	}
	// A socket of which a round has taken one event comes again in the next: 20 sockets, some of them twice.
	if seen < 20 {
		t.Errorf("%d reports", seen)
	}
	for _, at := range w.queued {
		if w.knotes[at].enabled {
			t.Errorf("left behind: %v", at)
		}
	}
}

// Random changes of random sockets, some closed or used again in the middle of a change. A change is Done
// only for the socket that was added; after it everything that holds is reported, with its token, and
// nothing is ever reported for another socket, a suppressed one, or beyond the interest.
func TestQueueRandom(t *testing.T) {
	const numbers = 6
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 0))
		w := newWorld()
		w.lazy, w.receipts = rng.IntN(2) == 0, rng.IntN(2) == 0
		owner := map[int]*socket{} // the socket that each number was added with
		tokens := map[int]uint64{}
		interest := map[int]backend.Mask{}
		for fd := range numbers {
			w.sockets[fd] = &socket{}
		}
		masks := []backend.Mask{forNone, forIn, forOut, forBoth}
		for step := range 200 {
			what := fmt.Sprintf("seed %d, step %d", seed, step)
			fd := rng.IntN(numbers)
			switch op := rng.IntN(8); {
			case op == 0:
				w.change(fd, func(s *socket) {
					*s = socket{data: int64(rng.IntN(2)), room: rng.IntN(2) == 0, eof: rng.IntN(4) == 0}
					if rng.IntN(4) == 0 {
						s.errno, s.eof = connReset, true
					}
				})
			case op == 1:
				w.reuse(fd, &socket{data: int64(rng.IntN(2)), room: rng.IntN(2) == 0})
			case op == 2:
				has, err := w.q.has(fd)
				if want := owner[fd] != nil && owner[fd] == w.sockets[fd]; has != want || err != nil {
					t.Fatalf("%s: has %d: %v, %v; want %v", what, fd, has, err, want)
				}
			default:
				if rng.IntN(4) == 0 {
					at := rng.IntN(mostSteps)
					w.before = func(i int) {
						if i == at {
							w.before = nil
							w.reuse(fd, &socket{data: 1, room: true})
						}
					}
				}
				was := w.sockets[fd]
				action, token, m := backend.Action(rng.IntN(4)), rng.Uint64(), masks[rng.IntN(4)]
				got, _ := w.do(action, fd, token, m)
				w.before = nil
				mine := owner[fd] != nil && owner[fd] == w.sockets[fd]
				moved := was != w.sockets[fd]
				var want backend.Status
				switch {
				case action == backend.Add && mine:
					want = backend.Present
				case action == backend.Add && moved:
					want = got // for which socket is checked below
				case action == backend.Add || mine:
					want = backend.Done
				case moved && (action == backend.Suppress || action == backend.Delete):
					want = got // the change may have been complete before
				default:
					want = backend.Absent
				}
				if got != want {
					t.Fatalf("%s: action %d on %d: %d; want %d", what, action, fd, got, want)
				}
				switch {
				case got == backend.Present:
				case got != backend.Done || action == backend.Delete:
					delete(owner, fd)
				case action == backend.Add:
					owner[fd] = w.sockets[fd]
					fallthrough
				default:
					tokens[fd], interest[fd] = token, m
					if action == backend.Suppress {
						interest[fd] = 0
					}
				}
				if got == backend.Done && (action == backend.Add || action == backend.Set) && !moved {
					checkLook(t, w, what, fd, tokens, interest, owner)
				}
			}
			for _, r := range w.harvest(1 + rng.IntN(8)) {
				checkReport(t, w, what, r, tokens, interest, owner)
			}
		}
		for at := range w.knotes {
			if owner[at[0]] == nil {
				t.Fatalf("seed %d: left %v", seed, at)
			}
		}
	}
}

func checkReport(t *testing.T, w *world, what string, r backend.Ready, tokens map[int]uint64, interest map[int]backend.Mask, owner map[int]*socket) {
	t.Helper()
	for fd, token := range tokens {
		if token == r.Token && owner[fd] != nil {
			if owner[fd] != w.sockets[fd] {
				t.Fatalf("%s: report %+v of another socket", what, r)
			}
			if m := interest[fd]; m == 0 || r.Mask&^(m|err|dead|closed) != 0 {
				t.Fatalf("%s: report %+v to interest %#x", what, r, m)
			}
			return
		}
	}
	t.Fatalf("%s: report %+v with an unknown token", what, r)
}

func checkLook(t *testing.T, w *world, what string, fd int, tokens map[int]uint64, interest map[int]backend.Mask, owner map[int]*socket) {
	t.Helper()
	s, m := w.sockets[fd], interest[fd]
	var want, got backend.Mask
	if s.data > 0 || s.eof {
		want |= m & in
	}
	if s.room {
		want |= m & out
	}
	if s.eof {
		want |= closed
	}
	if s.errno != 0 {
		want |= err | dead | closed
	}
	for {
		ready := w.harvest(16)
		for _, r := range ready {
			checkReport(t, w, what, r, tokens, interest, owner)
			if r.Token == tokens[fd] {
				got |= r.Mask
			}
		}
		if len(ready) < 16 {
			break
		}
	}
	if got&want != want {
		t.Fatalf("%s: %d with %+v, interest %#x: reported %#x; want %#x", what, fd, *s, m, got, want)
	}
}

// quick is a kernel that succeeds, with an event of number 4 each time.
type quick struct{}

func (quick) kevent(list, out []kevent, silent bool) (int, error) {
	if silent {
		return 0, nil
	}
	out[0] = kevent{fd: 4, filter: reads, data: 1}
	return 1, nil
}
func (quick) pending(int) (backend.Mask, bool) { return 0, true }
func (quick) open(int) error                   { return nil }

func TestQueueAllocatesNothing(t *testing.T) {
	q := &queue{sys: quick{}}
	list := []backend.Change{{Handle: 4, Interest: forBoth, Action: backend.Add}}
	ready := make([]backend.Ready, 16)
	q.Poll(list, nil)
	list[0].Action = backend.Set
	if n := testing.AllocsPerRun(100, func() {
		q.Poll(list, nil)
		if q.Poll(nil, ready) != 1 || q.Poll(list, ready) != 1 {
			t.Fatal("no report")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A report has the conditions of both knotes of a socket, however small the harvest is.
func TestQueueSmallHarvests(t *testing.T) {
	const sockets = 3
	for room := 1; room <= 2*sockets; room++ {
		w := newWorld()
		for fd := range sockets {
			w.sockets[fd] = &socket{data: 1, room: true}
			if status, err := w.do(backend.Add, fd, uint64(100+fd), forBoth); status != backend.Done {
				t.Fatal(status, err)
			}
		}
		// Six rounds of a level that is polled again after each report.
		for round := range 6 {
			seen := make(map[uint64]bool)
			for len(seen) < sockets {
				reports := w.harvest(room)
				if len(reports) == 0 {
					t.Fatalf("room %d, round %d: %d of %d reported", room, round, len(seen), sockets)
				}
				for _, r := range reports {
					if r.Mask != in|urgent|out || seen[r.Token] {
						t.Fatalf("room %d, round %d: %+v, seen %v; want IN and OUT at once", room, round, r, seen)
					}
					seen[r.Token] = true
				}
			}
			if more := w.harvest(1); len(more) != 0 {
				t.Fatalf("room %d, round %d: %+v too many", room, round, more)
			}
			for fd := range sockets {
				w.do(backend.Set, fd, uint64(100+fd), forBoth)
			}
		}
	}
}

// A kept report is dropped by a change of its number, and is not reported for another socket with the number.
func TestQueueKeptIsDropped(t *testing.T) {
	for _, action := range []backend.Action{backend.Set, backend.Suppress, backend.Delete} {
		w := newWorld()
		for fd := range 2 {
			w.sockets[fd] = &socket{data: 1, room: true}
			w.do(backend.Add, fd, uint64(100+fd), forIn)
		}
		if got := w.harvest(1); len(got) != 1 || got[0].Token != 100 {
			t.Fatalf("%+v", got)
		}
		if len(w.q.kept) != 1 {
			t.Fatalf("kept %+v", w.q.kept)
		}
		w.do(action, 1, 201, forIn)
		got := w.harvest(4)
		if action == backend.Set && (len(got) != 1 || got[0].Token != 201) || action != backend.Set && len(got) != 0 {
			t.Errorf("action %d: %+v", action, got)
		}
	}
	w := newWorld()
	for fd := range 2 {
		w.sockets[fd] = &socket{data: 1}
		w.do(backend.Add, fd, uint64(100+fd), forIn)
	}
	w.harvest(1)
	w.reuse(1, &socket{})
	if has, err := w.q.has(1); has || err != nil {
		t.Fatal(has, err)
	}
	if got := w.harvest(4); len(got) != 0 {
		t.Errorf("of a socket that is gone: %+v", got)
	}
}

// The ends of both directions mean Dead also for a harvest of one report.
func TestQueueDeadInSmallHarvest(t *testing.T) {
	w := newWorld()
	w.sockets[4] = &socket{room: true}
	w.do(backend.Add, 4, 1, forBoth)
	w.change(4, func(s *socket) { s.eof, s.errno = true, connReset })
	if got := w.harvest(1); len(got) != 1 || got[0].Mask != in|out|err|dead|closed {
		t.Errorf("%+v", got)
	}
}
