package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/internal/test/qemu"
	"github.com/socknotify/socknotify/overlapped"
)

// A verb is what a statement begins with. The documentation of the package lists them.
type verb struct {
	least int // words after it
	run   func(r *run, a []string)
}

// A run is the state of a script's case.
type run struct {
	*env
	stmt    *statement
	port    string // that the statement is about
	ports   map[string]*port
	handles map[string]handle
	peers   map[handle]handle
	vars    map[string]string
	waits   map[string]*waits
	parks   map[string]int // calls that wait, by port
	brief   map[string]int // of these, those that end by themselves
	ops     map[string]*operation
	pools   map[string]*overlapped.Buffers
	weak    map[string]weak.Pointer[key]
	before  map[string]map[string]int
	pending map[string][]note // dequeued, and not yet looked at
	arrived *ledger
	// scribbled are buffers of operations whose ports are closed.
	scribbled [][]byte
	perhaps   *atomic.Int32 // errors that might have been, and were not
	// carriedOut counts operations that have their result, of the port that is unattended.
	carriedOut *atomic.Int32
	entries    int  // of the calls that dequeue one notification after the other
	seen       info // the latest snapshot of a registration
	stops      map[string]func()
	traces     map[string]*debug.Trace
	tallies    map[string]*tally
	steps      func(words []string) // takes the statements of a steady block, in place of running them
}

// interpretEach runs a case for each value of its loops, each time with new ports.
func interpretEach(e *env, c *statement, loops [][]string, vars map[string]string) {
	if len(loops) == 0 {
		interpret(e, c.block, vars)
		return
	}
	for _, v := range (&run{env: e}).values(loops[0][3:]) {
		vars[loops[0][1]] = v
		interpretEach(e, c, loops[1:], vars)
	}
}

// interpret runs the statements of a case.
func interpret(e *env, body []*statement, vars map[string]string) {
	r := &run{
		env: e, ports: make(map[string]*port), handles: make(map[string]handle), peers: make(map[handle]handle),
		vars: vars, waits: make(map[string]*waits),
		parks: make(map[string]int), brief: make(map[string]int),
		ops: make(map[string]*operation), pools: make(map[string]*overlapped.Buffers), weak: make(map[string]weak.Pointer[key]),
		before: make(map[string]map[string]int), pending: make(map[string][]note), entries: 1,
		arrived: &ledger{data: make(map[handle][]byte)}, perhaps: new(atomic.Int32),
		carriedOut: new(atomic.Int32),
		stops:      make(map[string]func()), traces: make(map[string]*debug.Trace),
		tallies: make(map[string]*tally),
	}
	closeAll := func() {
		for _, p := range r.ports {
			if err := p.Close(); err != nil {
				e.Errorf("Close: %v", err)
			}
		}
	}
	e.Cleanup(closeAll) // where a statement fails
	r.block(body)
	closeAll()
	r.intact()
}

func (r *run) block(body []*statement) {
	for _, s := range body {
		r.stmt = s
		r.env.stmt = place(r.sentence, s.line) + ": " + s.text
		words := r.expand(s.words)
		r.port = "p"
		if name, ok := strings.CutSuffix(words[0], ":"); ok {
			r.port, words = name, words[1:]
		}
		if r.steps != nil && words[0] != "for" {
			r.steps(words)
			continue
		}
		verbs[words[0]].run(r, words)
	}
}

// expand replaces the variables of loops.
func expand(word string, vars map[string]string) string {
	return variable.ReplaceAllStringFunc(word, func(name string) string {
		if v, ok := vars[strings.Trim(name, "${}")]; ok {
			return v
		}
		return name
	})
}

var variable = regexp.MustCompile(`\$(\w+|\{\w+\})`)

// expand replaces the variables, which all must be known.
func (r *run) expand(words []string) []string {
	words = slices.Clone(words)
	for i, w := range words {
		if !strings.Contains(w, "$") {
			continue
		}
		if words[i] = expand(w, r.vars); variable.MatchString(words[i]) {
			r.Fatalf("%s is not a variable of a loop", w)
		}
	}
	return r.ranges(words)
}

// The names of scripts.
var (
	eventNames = map[string]events{
		"none": 0, "in": in, "out": out, "hangup": hangup, "error": bad, "removed": gone,
	}
	triggerNames = map[string]socknotify.Trigger{
		"level": level, "edge": edge, "one-shot": oneShot, "persistent": persistent,
	}
	// stateNames are the conditions that arrived waits for.
	stateNames = map[string]state{
		"in": stateIn, "out": stateOut, "error": stateErr, "dead": stateDead, "end": statePeerClosed, "urgent": stateUrgent,
	}
	fieldNames = []string{"Op", "Filter", "Trigger", "Key", "Conn", "Handle"}
	loopNames  = map[string][]string{
		"triggers": {"level", "edge", "level|one-shot", "edge|one-shot"},
		"filters":  {"none", "in", "out", "in|out", "hangup", "in|hangup", "out|hangup", "in|out|hangup"},
		"streams":  {"stream", "tcp"},

		"uncomparable-keys": {"%slice", "%map", "%func", "%struct-of-slice", "%array-of-func"},
		"nan-keys": {
			"%nan", "%nan32", "%complex", "%struct-of-nan", "%array-of-nan", "%nan-inside", "%nan-deep",
		},
	}
)

// errorNames are the names of errors. Some depend on the system, and are known once the package is
// initialized.
var errorNames = sync.OnceValue(func() map[string]error {
	return map[string]error{
		"ErrInvalid": socknotify.ErrInvalid, "ErrKeyMismatch": socknotify.ErrKeyMismatch, "ErrOtherPort": socknotify.ErrOtherPort,
		"ErrNotRegistered": socknotify.ErrNotRegistered, "ErrBadSocket": socknotify.ErrBadSocket, "ErrClosed": socknotify.ErrClosed,
		"ErrTimeout": socknotify.ErrTimeout, "ErrCanceled": overlapped.ErrCanceled, "ErrNotInFlight": overlapped.ErrNotInFlight,
		"net.ErrClosed": net.ErrClosed, "os.ErrClosed": os.ErrClosed, "os.ErrDeadlineExceeded": os.ErrDeadlineExceeded,
		"context.Canceled": context.Canceled, "context.DeadlineExceeded": context.DeadlineExceeded,
		"io.EOF": endOfStream, "cause": errCause,
		"not-open": errNotOpen, "no-socket": errNoSocket, "refused": errRefused, "reset": errReset,
	}
})

// mask returns the union of names joined by |, and of several such joined by & the intersection.
func mask[T ~uint8 | ~uint32 | ~int | ~int16](word string, names map[string]T) (m T, ok bool) {
	for i, part := range strings.Split(word, "&") {
		var union T
		for name := range strings.SplitSeq(part, "|") {
			v, known := names[name]
			if !known {
				return 0, false
			}
			union |= v
		}
		if i == 0 {
			m = union
		} else {
			m &= union
		}
	}
	return m, true
}

// thePort returns a port by its name. The first of a case needs no declaration, and is p.
func (r *run) thePort(name string) *port {
	if name == "p" && r.ports[name] == nil {
		r.ports[name] = r.newPort()
	}
	return known(r, r.ports, name, "no port")
}

func (r *run) p() *port { return r.thePort(r.port) }

// known returns what has a name, which must be known.
func known[T comparable](r *run, all map[string]T, name, what string) (none T) {
	if all[name] == none {
		r.Fatalf("%s is %s", name, what)
	}
	return all[name]
}

func (r *run) handle(name string) handle { return known(r, r.handles, name, "no socket") }

func (r *run) socket(name string) *socket {
	s, ok := r.handle(name).(*socket)
	if !ok {
		r.Fatalf("%s is a handle alone", name)
	}
	return s
}

// peer returns the other side of a connection.
func (r *run) peer(name string) handle {
	h := r.peers[r.handle(name)]
	if h == nil {
		r.Fatalf("%s has no peer", name)
	}
	return h
}

func (r *run) group(name string) *waits { return known(r, r.waits, name, "no call that waits") }

func (r *run) pair(names []string, a, b handle) {
	r.peers[a], r.peers[b] = b, a
	for i, name := range names {
		r.handles[name] = []handle{a, b}[i]
	}
}

func (r *run) number(word string) int {
	n, err := strconv.ParseInt(word, 0, 64)
	if err != nil {
		r.Fatalf("%q is no number", word)
	}
	return int(n)
}

func (r *run) string(word string) string {
	s, err := strconv.Unquote(word)
	if err != nil {
		r.Fatalf("%s is no text", word)
	}
	return s
}

// forever is the timeout of that name. A call that must dequeue something waits for as long as
// anything may take.
const forever = time.Duration(-1)

// timeout parses how long a call waits.
func (r *run) timeout(word string) time.Duration {
	switch word {
	case "0":
		return 0
	case "forever":
		return forever
	}
	d, err := time.ParseDuration(word)
	if err != nil {
		r.Fatalf("%q is no timeout", word)
	}
	return d
}

// lists splits words at a separator.
func lists(words []string, separator string) [][]string {
	var all [][]string
	for {
		i := slices.Index(words, separator)
		if i < 0 {
			return append(all, words)
		}
		all, words = append(all, words[:i]), words[i+1:]
	}
}

// outcome splits words at "->".
func outcome(words []string) (what, want []string) {
	if i := slices.Index(words, "->"); i >= 0 {
		return words[:i], words[i+1:]
	}
	return words, nil
}

// errors checks an error against its names. None is success.
func (r *run) errors(err error, names []string) {
	if len(names) == 0 || names[0] == "nil" {
		if err != nil {
			r.Fatalf("%v; want no error", err)
		}
		return
	}
	for _, name := range names {
		switch want, known := errorNames()[name]; {
		case known:
			r.wantErr(err, want)
		case strings.Contains(name, "|"):
			r.oneOf(err, strings.Split(name, "|"))
		case name == "perhaps":
			if err == nil {
				r.perhaps.Add(1)
				return
			}
		case name == "any":
			r.wantErr(err)
		case name == "net.Error":
			if ne := net.Error(nil); !errors.As(err, &ne) || !ne.Timeout() {
				r.Fatalf("%v is no timeout to package net", err)
			}
		case slices.Contains(fieldNames, name):
			if r.wantErr(err, socknotify.ErrInvalid); !strings.Contains(err.Error(), name) {
				r.Fatalf("%q does not name the field %s", err, name)
			}
		default:
			r.Fatalf("unknown error %q", name)
		}
	}
}

// oneOf checks that an error is one of several.
func (r *run) oneOf(err error, names []string) {
	for _, name := range names {
		if want := errorNames()[name]; want != nil && qemu.Is(err, want) {
			return
		}
	}
	r.Fatalf("%v; want one of %s", err, names)
}

// An expected is a notification that is wanted.
type expected struct {
	key    string
	events []events // any of these
	has    bool     // at least these
	posted bool
	// accepted is a connection. Only workers close it.
	accepted bool
	data     uintptr
	any      bool // with any data
	text     string
}

// expected parses notifications: a key, and then its events, "posted", "data=…", "has" or "or".
func (r *run) expected(words []string) []expected {
	var all []expected
	if len(words) == 0 {
		return nil
	}
	for _, some := range lists(words, ",") {
		if len(some) == 0 {
			r.Fatalf("want a notification's key")
		}
		w := expected{key: some[0], events: make([]events, 1), text: strings.Join(some, " ")}
		for _, word := range some[1:] {
			ev, ok := mask(word, eventNames)
			switch {
			case ok:
				w.events[len(w.events)-1] |= ev
			case word == "or":
				w.events = append(w.events, 0)
			case word == "has":
				w.has = true
			case word == "posted":
				w.posted = true
			case word == "accepted":
				w.accepted = true
			case word == "data=*":
				w.any = true
			case strings.HasPrefix(word, "data="):
				w.data = uintptr(r.number(word[5:]))
			default:
				r.Fatalf("unknown event %q", word)
			}
		}
		all = append(all, w)
	}
	return all
}

func (w *expected) is(n note) bool {
	kind := socknotify.KindSocket
	switch {
	case w.posted:
		kind = socknotify.KindPosted
	case w.events[0] == gone:
		kind = socknotify.KindRemoved
	}
	named := w.key == "*" || keyName(n.Key) == w.key
	if value := specialKeys[w.key]; value != nil {
		named = fmt.Sprintf("%T %v", n.Key, n.Key) == fmt.Sprintf("%T %v", value(), value())
	}
	return named && n.Kind() == kind && (w.any || n.Data == w.data) && slices.ContainsFunc(w.events, func(ev events) bool {
		return n.Events == ev || w.has && n.Events.Has(ev)
	})
}

// key returns the key of a name. One that begins with @ is an object that only the port keeps
// reachable.
func (r *run) key(name string) any {
	if value := specialKeys[name]; value != nil {
		return value()
	}
	if name[0] != '@' {
		return name
	}
	k := r.weak[name].Value()
	if k == nil {
		k = &key{name}
		r.weak[name] = weak.Make(k)
	}
	return k
}

// keyName is the name of a key of key.
func keyName(k any) string {
	if k, ok := k.(*key); ok {
		return k.name
	}
	return fmt.Sprint(k)
}

// notes checks that these are the notifications that are wanted, in any order.
func (r *run) notes(got []note, want []expected) {
	left := slices.Clone(want)
	for _, n := range got {
		i := slices.IndexFunc(left, func(w expected) bool { return w.is(n) })
		if i < 0 {
			r.Fatalf("want %s, got %s", texts(want), noteTexts(got))
		}
		left = slices.Delete(left, i, i+1)
	}
	if len(left) > 0 {
		r.Fatalf("want %s, got %s", texts(want), noteTexts(got))
	}
}

func texts(want []expected) string {
	var all []string
	for _, w := range want {
		all = append(all, w.text)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func noteTexts(notes []note) string {
	var all []string
	for _, n := range notes {
		s := fmt.Sprintf("%v %v", n.Key, n.Events)
		if n.Kind() == socknotify.KindPosted {
			s += " posted"
		}
		if n.Data != 0 {
			s += fmt.Sprintf(" data=%d", n.Data)
		}
		all = append(all, s)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// registration makes a Registration of its words: an operation, a socket, and what OpEnable reads.
func (r *run) registration(words []string) reg {
	if words[0] == "nothing" {
		var x reg
		if len(words) > 1 {
			h := r.handle(words[1])
			x = naming(h, x)
			r.fields(&x, h, words[2:])
		}
		return x
	}
	if len(words) < 2 {
		r.Fatalf("%s needs a socket", words[0])
	}
	h := r.handle(words[1])
	var key any = words[1]
	x := map[string]reg{"enable": enable(h, key, 0, 0), "disable": disable(h), "remove": remove(h)}[words[0]]
	if x.Op == 0 {
		r.Fatalf("%s is no operation", words[0])
	}
	r.fields(&x, h, words[2:])
	return x
}

// fields sets the fields of a Registration of their words.
func (r *run) fields(x *reg, h handle, words []string) {
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		ev, isEvents := mask(word, eventNames)
		trigger, isTrigger := mask(word, triggerNames)
		switch {
		case word == "-": // nothing, in a loop
		case isEvents:
			x.Filter |= ev
		case isTrigger:
			x.Trigger |= trigger
		case name == "key":
			x.Key = r.key(value)
		case name == "op":
			x.Op = socknotify.Op(r.number(value))
		case name == "filter":
			x.Filter = events(r.number(value))
		case name == "trigger":
			x.Trigger = socknotify.Trigger(r.number(value))
		case word == "drained":
			x.Drained = x.Conn == nil
		case word == "raw":
			x.Conn, x.Handle = nil, h.Handle() // whatever the kind of sockets is
		default:
			r.Fatalf("unknown word %q", word)
		}
	}
}

// notEarly checks a call that has ended: by ErrTimeout not before its timeout had passed (C4).
func (r *run) notEarly(err error, took, timeout time.Duration) {
	ended := errors.Is(err, socknotify.ErrTimeout) || errors.Is(err, context.DeadlineExceeded)
	if ended && took < timeout {
		r.Fatalf("waited %v, less than the %v asked for", took, timeout)
	}
}

// values returns the words that a loop goes through.
func (r *run) values(words []string) []string {
	var all []string
	for _, word := range words {
		from, to, isRange := strings.Cut(word, "..")
		switch list := loopNames[word]; {
		case list != nil:
			all = append(all, list...)
		case word == "networks":
			all = append(all, r.supported("tcp", "udp", "unix", "unixgram", "unixpacket")...)
		case word == "no-sockets":
			for name, f := range r.noSockets() {
				name = strings.ReplaceAll(name, " ", "-")
				r.handles[name] = f
				all = append(all, name)
			}
		case isRange:
			for i := r.number(from); i <= r.number(to); i++ {
				all = append(all, strconv.Itoa(i))
			}
		default:
			all = append(all, word)
		}
	}
	return all
}
