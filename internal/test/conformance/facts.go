package conformance

import (
	"errors"
	"strings"
	"time"

	"github.com/socknotify/socknotify"
)

// A fact is a case of a script that prints what a system reports in place of asserting it:
//
//	case DataArrives, fact "data arrives"
//		tcp s peer
//		watch s
//		deliver peer "x"
//		report
//
// It is a row of the table in docs/platforms.md, which TestFacts makes. A cell has the conditions
// that were reported after watch, and those that hold at report. "report silent" has no condition
// that must come; "report closed" is for sockets that are closed, of which none holds.

const (
	soon    = 60 * time.Millisecond  // no report for this long on loopback means that none comes
	patient = 300 * time.Millisecond // waits for a report that may come
	looks   = 20                     // as often must nothing be found, for a busy machine can take the time away
)

// nothingReported is what a cell says of no condition, and notHere of a situation that a system has
// not.
const (
	nothingReported = "–"
	notHere         = "not on this system"
)

// A watcher watches one socket: a port, a backend without one, or the system's own call.
type watcher interface {
	start(h uintptr) error
	// gather returns the conditions that are reported until none comes for a while.
	gather(first time.Duration) string
	holds() string
}

// A factCell is where a fact is observed, and what was seen there.
type factCell struct {
	open func(e *env) (watcher, error)
	w    watcher
	text string
}

// watch begins to watch a socket.
func (r *run) watch(a []string) {
	if r.cell == nil {
		r.Fatalf("only a fact watches")
	}
	w, err := r.cell.open(r.env)
	if errors.Is(err, errors.ErrUnsupported) {
		r.Skip(err)
	}
	r.must(err)
	r.must(w.start(r.handle(a[0]).Handle()))
	r.cell.w = w
}

// report writes the cell.
func (r *run) report(a []string) {
	must, first := len(a) == 0, patient
	if must {
		first = limitNow
	}
	text := r.cell.w.gather(first)
	if must && text == nothingReported {
		r.Fatalf("nothing is reported")
	}
	if len(a) == 0 || a[0] != "closed" {
		text += " → " + r.cell.w.holds()
	}
	r.cell.text = text
}

// gather calls next until it has brought nothing for a while.
func gather(first time.Duration, next func() bool) {
	for end, vain := time.Now().Add(first), 0; vain < looks || time.Now().Before(end); vain++ {
		if next() {
			end, vain = time.Now().Add(soon), 0
		}
	}
}

// A watch watches by edges for changes, and by level for the conditions that hold afterwards.
type watch struct {
	enable func(h uintptr, filter events, t socknotify.Trigger) error
	next   func(timeout time.Duration) (events, bool)
	handle uintptr
}

func (w *watch) start(h uintptr) error {
	w.handle = h
	err := w.enable(h, socknotify.EventsAll, edge|persistent)
	w.gather(soon)
	return err
}

func (w *watch) gather(first time.Duration) string {
	var all events
	gather(first, func() bool {
		ev, ok := w.next(time.Millisecond)
		all |= ev
		return ok
	})
	if all == 0 {
		return nothingReported
	}
	return strings.ReplaceAll(all.String(), "|", " ")
}

func (w *watch) holds() string {
	if err := w.enable(w.handle, socknotify.EventsAll, level|oneShot); err != nil {
		return err.Error()
	}
	return w.gather(soon)
}

func watchPort(e *env) (watcher, error) {
	p := e.port()
	return &watch{
		enable: func(h uintptr, filter events, t socknotify.Trigger) error {
			regs := []reg{enable(fd(h), "k", filter, t)}
			if _, err := p.Process(regs, nil, 0); err != nil {
				return err
			}
			return regs[0].Result
		},
		next: func(timeout time.Duration) (events, bool) {
			var one [1]note
			n, _ := p.Process(nil, one[:], timeout)
			return one[0].Events, n == 1
		},
	}, nil
}

// Facts returns the rows of the table of facts.
func Facts() (names []string) {
	for _, c := range factChecks() {
		names = append(names, c.fact)
	}
	return names
}

// factChecks returns the facts of all scripts.
func factChecks() (all []check) {
	for _, sentence := range Sentences() {
		checks, err := parseFile(sentence)
		if err != nil {
			continue // its test says so
		}
		for _, c := range checks {
			if c.fact != "" {
				all = append(all, c)
			}
		}
	}
	return all
}
