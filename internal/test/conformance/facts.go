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

// A watcher watches one socket: with a port, with a backend without one, or with the system's own
// call. Conditions are the bits of one number.
type watcher struct {
	enable func(first bool) error // by edges at first, and later for what holds
	// next returns what is reported within a millisecond. all was reported before.
	next func(all uint32) (conditions uint32, any bool)
	text func(all uint32) string
}

// gather returns the conditions that are reported until none comes for a while.
func (w *watcher) gather(first time.Duration) string {
	all := uint32(0)
	for end, vain := time.Now().Add(first), 0; vain < looks || time.Now().Before(end); vain++ {
		if conditions, ok := w.next(all); ok {
			all |= conditions
			end, vain = time.Now().Add(soon), 0
		}
	}
	if all == 0 {
		return nothingReported
	}
	return strings.ReplaceAll(w.text(all), "|", " ")
}

// A factCell is where a fact is observed, and what was seen there.
type factCell struct {
	open func(e *env, h uintptr) (*watcher, error)
	w    *watcher
	text string
}

// watch begins to watch a socket.
func (r *run) watch(a []string) {
	if r.cell == nil {
		r.Fatalf("only a fact watches")
	}
	w, err := r.cell.open(r.env, r.handle(a[0]).Handle())
	if errors.Is(err, errors.ErrUnsupported) {
		r.Skip(err)
	}
	r.must(err)
	r.must(w.enable(true))
	w.gather(soon)
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
		holds := ""
		if err := r.cell.w.enable(false); err != nil {
			holds = err.Error()
		} else {
			holds = r.cell.w.gather(soon)
		}
		text += " → " + holds
	}
	r.cell.text = text
}

// watchEvents watches by the events of a port, or of the call that it stands for.
func watchEvents(
	enable func(socknotify.Trigger) error, next func(time.Duration) (events, bool),
) *watcher {
	return &watcher{
		enable: func(first bool) error {
			if first {
				return enable(edge | persistent)
			}
			return enable(level | oneShot)
		},
		next: func(uint32) (uint32, bool) {
			ev, ok := next(time.Millisecond)
			return uint32(ev), ok
		},
		text: func(all uint32) string { return events(all).String() },
	}
}

func watchPort(e *env, h uintptr) (*watcher, error) {
	p := e.port()
	return watchEvents(func(t socknotify.Trigger) error {
		return apply(p, enable(fd(h), "k", socknotify.EventsAll, t))
	}, func(timeout time.Duration) (events, bool) {
		var one [1]note
		n, _ := p.Process(nil, one[:], timeout)
		return one[0].Events, n == 1
	}), nil
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
