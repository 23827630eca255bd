//go:build unix || windows

package model

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/socknotify/socknotify"
	core "github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/sock"
)

type (
	port         = socknotify.Port[int]
	notification = socknotify.Notification[int]
	events       = socknotify.Events
)

// A world is the sockets, the ports, and what the model knows about them.
type world struct {
	// mu is held over each operation and over the checking of each notification. What an operation
	// causes is therefore checked after the model knows of the operation.
	mu      sync.Mutex
	backend string
	waiters *waiters // nil: only the sequence itself dequeues
	// clock ticks with every operation and notification. A call that began at a time may return
	// what was allowed at any time since.
	clock atomic.Int64

	hub *sock.Socket // what TCP pairs are made with

	slots [socks]slot
	files []*file
	byNum map[int]*file  // the open ones
	kept  map[int]func() // numbers of closed ones, and how to let go of them

	retired map[int]bool // those of them that no socket may get
	ports   [ports]*portState
	fences  []*span // of operations under way
	key     int

	settling bool
	failure  string // the first
}

// A slot is what an Op names: a number, whether it is open or not, and the file that it was last.
type slot struct {
	num  int
	file *file
}

// A portState is a port and what it owes.
type portState struct {
	p       *port
	edges   bool
	strict  bool         // WithStrictEdge
	regs    map[int]*reg // by number: those that are not over
	byKey   map[int][]*reg
	oldKey  map[int]int // the number's last
	removes map[int]int // EventRemoves to come, by key
	posted  int
	got     []bool
	next    int // the first post that has not come
	batch   []Op
}

// A reg is a registration.
type reg struct {
	num, key int
	file     *file
	filter   events
	trigger  socknotify.Trigger
	enabled  bool
	tied     bool    // the socket's own Close ends it
	gone     bool    // its number was closed: notifications may come, but none must
	budget   int     // one-shot: how many may come
	doubts   []doubt // when it was charged for what may have been another's
	fired    int     // how many came since it was enabled
	spans    []*span
	held     events // what held at the last look
	pending  events // edge: what has begun to hold since it was enabled
	silent   events // strict edge: what held at the enable, and is due only once it was drained
	since    int    // when it was enabled or notified, whichever is later
	notified int    // when, or when it was made
	fresh    events // what was notified since the last look
	settled  bool   // persistent level: it has come since settling began
}

// A span is a time in which a registration may notify, with a filter. A span that goes on ends at -1.
type span struct {
	from, to int
	filter   events
	oneShot  bool
}

func (r *reg) oneShot() bool { return r.trigger&socknotify.TriggerOneShot != 0 }
func (r *reg) edge() bool    { return r.trigger&socknotify.TriggerEdge != 0 }

func (w *world) now() int  { return int(w.clock.Load()) }
func (w *world) tick() int { return int(w.clock.Add(1)) }

func newWorld(backend string) *world {
	w := &world{backend: backend, byNum: make(map[int]*file), kept: make(map[int]func()), retired: make(map[int]bool)}
	w.hub = listen()
	for i := range w.ports {
		w.ports[i] = w.newPort(false)
	}
	for i := range w.slots {
		w.place(&w.slots[i], w.newFile(kind(i)))
	}
	return w
}

func (w *world) newPort(strict bool) *portState {
	opts := []socknotify.Option{backendtest.With(w.backend)}
	if strict {
		opts = append(opts, socknotify.WithStrictEdge())
	}
	p := must(socknotify.New[int](opts...))
	return &portState{p: p, edges: core.Of(p).Core.OwnEdges, strict: strict, regs: make(map[int]*reg),
		byKey: make(map[int][]*reg), oldKey: make(map[int]int), removes: make(map[int]int)}
}

// place gives a new file a number: if possible one that a socket had before.
func (w *world) place(s *slot, f *file) {
	if w.retired[s.num] {
		s.num = noSocket
	}
	w.release(s.num)
	num := moved(f.sock.Handle(), s.num)
	check(f.sock.Close())
	w.put(s, f, num)
}

// keep prevents a closed number from naming a socket until place uses it. Where the
// system chooses the numbers, another end would take it.
func (w *world) keep(num int) {
	if letGo := occupy(num); letGo != nil {
		w.kept[num] = letGo
	}
}

func (w *world) release(num int) {
	if letGo := w.kept[num]; letGo != nil {
		delete(w.kept, num)
		letGo()
	}
}

func (w *world) put(s *slot, f *file, num int) {
	f.fd = num
	f.sock = must(sock.Adopt(uintptr(num), sock.MakeNonblocking))
	s.num, s.file = num, f
	w.byNum[num] = f
	w.files = append(w.files, f)
}

// closing takes a file's number from it in the model. Its own Close ends the registrations that know the
// socket; the others may be heard of until something shows that it is gone (G9).
func (w *world) closing(f *file, itself bool) {
	delete(w.byNum, f.fd)
	for _, ps := range w.ports {
		r := ps.regs[f.fd]
		switch {
		case r == nil || r.file != f:
		case r.tied && itself:
			w.over(ps, r)
		default:
			r.gone = true
		}
	}
	f.fd = -1
}

func (w *world) fail(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf(format, args...)
	}
}

// close ends everything. The ports come first: they must not mind.
func (w *world) close() {
	for _, ps := range w.ports {
		if err := ps.p.Close(); err != nil {
			w.fail("Close: %v", err)
		}
	}
	for _, f := range w.files {
		f.destroy()
	}
	for num := range w.kept {
		w.release(num)
	}
	check(w.hub.Close())
}

func (ps *portState) String() string {
	return fmt.Sprintf("port %p (%d registrations)", ps.p, len(ps.regs))
}

func (r *reg) String() string {
	s := fmt.Sprintf("registration of %v %d, key %d, filter %v, trigger %v", r.file.kind, r.num, r.key, r.filter, r.trigger)
	if !r.enabled {
		s += ", disabled"
	}
	if r.gone {
		s += ", closed"
	}
	return s + fmt.Sprintf(", notified %d times since it was enabled, the system says %#x", r.fired, r.file.mask())
}
