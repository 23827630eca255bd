package conformance

import (
	"bytes"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/socknotify/socknotify/debug"
	core "github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/overlapped"
	"github.com/socknotify/socknotify/sock"
)

// verbs are the verbs of scripts. The statement's first word is a[0] for those of calls and
// operations; for the others a begins after it.
var verbs map[string]verb

func after(f func(r *run, a []string)) func(*run, []string) {
	return func(r *run, words []string) { f(r, words[1:]) }
}

func init() {
	verbs = map[string]verb{
		// Blocks.
		"for": {3, after(func(r *run, a []string) {
			body := r.stmt.block
			for _, v := range r.values(a[2:]) {
				r.vars[a[0]] = v
				r.block(body)
			}
			delete(r.vars, a[0])
		})},
		"repeat": {1, after(func(r *run, a []string) {
			body := r.stmt.block
			for range r.number(a[0]) {
				r.block(body)
			}
		})},
		"until":    {1, after((*run).until)},
		"together": {0, after((*run).together)},
		"steady":   {0, after((*run).steady)},
		"taken":    {0, func(*run, []string) {}}, // of steady
		"if":       {1, after(func(r *run, a []string) { r.when(a[0], true) })},
		"unless":   {1, after(func(r *run, a []string) { r.when(a[0], false) })},

		// Ports.
		"ports": {1, after(func(r *run, a []string) {
			for _, name := range a {
				r.ports[name] = r.newPort()
			}
		})},
		"close-port": {1, after(func(r *run, a []string) {
			r.must(r.thePort(a[0]).Close())
			for _, o := range r.ops { // their buffers are the caller's
				if o.port == a[0] {
					for i := range o.b {
						o.b[i] = scribble
					}
					r.scribbled = append(r.scribbled, o.b)
				}
			}
		})},
		"drop": {1, after(func(r *run, a []string) { // a port that is not closed
			open := len(handles.List())
			delete(r.ports, a[0])
			r.collected("the port", func() bool { return len(handles.List()) < open })
		})},
		"post": {1, after(func(r *run, a []string) {
			what, want := outcome(a)
			data := uintptr(0)
			if len(what) > 1 {
				data = uintptr(r.number(what[1]))
			}
			r.errors(r.p().Post(r.key(what[0]), data), want)
		})},
		"unattended": {0, after(func(r *run, _ []string) { // the helper comes as it does for programs
			c, n := core.Of(r.p()).Core, r.carriedOut
			c.HelpAfter = core.HelpAfter
			c.Completed = func(unsafe.Pointer) { n.Add(1) }
		})},
		"carried-out": {1, after(func(r *run, a []string) { // so many operations, since the port is unattended
			r.env.until("they are carried out", func() bool { return int(r.carriedOut.Load()) == r.number(a[0]) })
		})},
		"count": {2, after((*run).count)},
		"since": {0, after((*run).since)},

		// Calls.
		"enable":  {2, (*run).call},
		"disable": {1, (*run).call},
		"remove":  {1, (*run).call},
		"nothing": {0, (*run).call},
		"dequeue": {2, (*run).call},
		"on": {2, after(func(r *run, a []string) {
			if strings.Contains(r.trigger, "one-shot") || !r.tied {
				r.call(append([]string{"enable", a[0], r.trigger, "drained"}, a[1:]...))
			}
		})},
		"on-without": {2, after(func(r *run, a []string) {
			if strings.Contains(r.trigger, "one-shot") {
				r.call(append([]string{"enable", a[0], r.trigger}, a[1:]...))
			}
		})},
		"rearm": {3, after(func(r *run, a []string) {
			if s, ok := r.handle(a[0]).(*socket); !ok || !s.tied { // such a socket re-arms by itself
				r.call(slices.Concat([]string{"enable"}, a, []string{"drained"}))
			}
		})},
		"deregister": {1, after(func(r *run, a []string) {
			what, want := outcome(a)
			h := r.handle(what[0])
			x, name := remove(h), what[0]
			for _, word := range what[1:] {
				if strings.Contains(word, "=") || word == "drained" {
					r.fields(&x, h, []string{word})
				} else {
					name = word
				}
			}
			if slices.Equal(want, []string{"ends"}) {
				r.ends(func() { r.p().Deregister(x) })
				return
			}
			k, err := r.p().Deregister(x)
			r.errors(err, want)
			if err == nil && keyName(k) != name {
				r.Fatalf("want the key %s, got %v", name, k)
			}
		})},

		// Keys.
		"kept": {1, after(func(r *run, a []string) {
			runtime.GC()
			for _, name := range a {
				if r.weak[name].Value() == nil {
					r.Fatalf("%s was collected, and the port needs it", name)
				}
			}
		})},
		"released": {1, after(func(r *run, a []string) {
			r.seen = info{} // it has the key
			for _, name := range a {
				r.collected("the key "+name, func() bool { return r.weak[name].Value() == nil })
				if o := r.ops[name]; o != nil {
					r.collected("its buffer", func() bool { return o.buffer.Value() == nil })
				}
			}
			runtime.KeepAlive(r.p())
		})},

		// What comes.
		"want": {2, after(func(r *run, a []string) {
			want := r.expected(a)
			var got []note
			for range want {
				got = append(got, r.next())
			}
			r.notes(got, want)
		})},
		"hears": {2, after(func(r *run, a []string) {
			if r.strict {
				r.env.none(r.p())
			} else {
				verbs["want"].run(r, append([]string{"want"}, a...))
			}
		})},
		"workers":     {1, after((*run).workers)},
		"served":      {2, after((*run).served)},
		"end-workers": {0, after((*run).endWorkers)},
		"within":      {3, after((*run).within)},
		"entries":     {1, after(func(r *run, a []string) { r.entries = r.number(a[0]) })},
		"all":         {1, after((*run).all)},
		"now": {2, after(func(r *run, a []string) {
			r.nothingKept()
			want := r.expected(a)
			r.notes(r.come(r.p(), len(want)), want)
		})},
		"none": {0, after(func(r *run, _ []string) {
			r.nothingKept()
			r.env.none(r.p())
		})},
		"empty": {0, after(func(r *run, _ []string) {
			r.nothingKept()
			r.notes(r.env.now(r.p()), nil)
		})},
		"poll": {0, after(func(r *run, _ []string) { r.env.now(r.p()) })},
		"quiet": {0, after(func(r *run, a []string) {
			most := 0
			if len(a) > 0 {
				most = r.number(a[0])
			}
			r.env.quiet(r.p(), most)
		})},
		"now-at-most": {2, after(func(r *run, a []string) {
			want := r.expected(a)[0]
			for _, n := range r.env.now(r.p()) {
				r.notes([]note{n}, []expected{want})
			}
		})},
		"never": {1, after(func(r *run, a []string) {
			ev, ok := mask(a[0], eventNames)
			if !ok {
				r.Fatalf("unknown event %q", a[0])
			}
			r.env.never(r.p(), ev)
		})},

		// Calls that wait.
		"wait":  {1, after((*run).wait)},
		"woken": {1, after((*run).woken)},
		"waits": {1, after(func(r *run, a []string) {
			r.still(r.group(a[0]).ends)
			before := r.polls(r.p())
			r.still(r.group(a[0]).ends)
			r.noSpin(r.polls(r.p()) - before)
		})},
		"parked": {1, after(func(r *run, a []string) { r.env.parked(r.p(), r.number(a[0])) })},
		"cancel": {1, after(func(r *run, a []string) {
			w := r.group(a[0])
			if w.cancel == nil {
				r.Fatalf("%s has no context", a[0])
			}
			w.cancel(errCause)
		})},

		// Sockets.
		"stream":    pairs((*env).unix),
		"tcp":       pairs((*env).tcp),
		"udp":       pairs((*env).udp),
		"datagrams": pairs((*env).datagrams),
		"packets": {1, after(func(r *run, a []string) {
			x, y := r.packets()
			r.pair(a, r.own(x), r.own(y))
		})},
		"net": {2, after(func(r *run, a []string) { // network, and the two ends
			x, y := r.netPair(a[0])
			r.pair(a[1:], netConn{x}, netConn{y})
		})},
		"mptcp-pair": {3, after(func(r *run, a []string) { // listener, client and server
			x, y := r.connected(r.mptcp(), r.socket(a[0]))
			r.pair(a[1:], x, y)
		})},
		"mptcp": singles((*env).mptcp),
		"mptcp-listener": singles(func(e *env) *socket {
			l := e.mptcp()
			e.must(l.Bind(sock.Loopback))
			e.must(l.Listen(16))
			return l
		}),
		"vsock": singles((*env).vsock),
		"refuse-connect": {1, after(func(r *run, a []string) {
			if !r.refuseConnect(r.socket(a[0])) {
				r.Skip("this system refuses within the call")
			}
		})},
		"listener": singles((*env).listener),
		"fresh":    singles((*env).fresh),
		"refused":  singles((*env).refusedSocket),
		"udp-nowhere": singles(func(e *env) *socket {
			s := e.keep(sock.New(sock.UDP4))
			e.connect(s, e.nowhere(sock.UDP4))
			return s
		}),
		"udp-fresh":  singles(func(e *env) *socket { return e.keep(sock.New(sock.UDP4)) }),
		"unix-fresh": singles((*env).unixFresh),

		// Handles and files.
		"strange": {2, after(func(r *run, a []string) { r.handles[a[0]] = r.strange(a[1:]) })},
		"file": {2, after(func(r *run, a []string) {
			r.handles[a[0]] = scriptFile{r.env.file(string(r.text(a[1:])))}
		})},
		"contents": {2, after(func(r *run, a []string) {
			data, err := os.ReadFile(r.file(a[0]).Name())
			if r.must(err); string(data) != r.string(a[1]) {
				r.Fatalf("want %s, got %q", a[1], data)
			}
		})},
		"handle": {2, after(func(r *run, a []string) {
			if h := r.handles[a[1]]; h != nil {
				r.handles[a[0]] = fd(h.Handle())
			} else {
				r.handles[a[0]] = fd(r.number(a[1]))
			}
		})},
		"dup": {1, after(func(r *run, a []string) {
			h := r.handle(a[0])
			f := r.own(r.dup(h))
			if len(a) > 2 {
				r.handles[a[2]] = f
			}
			if peer := r.peers[h]; peer != nil {
				r.peers[peer] = f
			}
		})},
		"reuse": {3, after(func(r *run, a []string) {
			h := r.handle(a[0])
			number := h.Handle()
			r.closeHandle(h)
			pair := (*env).unix
			if len(a) > 2 && a[1] == "datagrams" {
				pair, a = (*env).datagrams, a[1:]
			}
			x, y := pair(r.env)
			f, peer := r.env.at(number, x, y)
			r.pair(a[2:], r.own(f), peer)
		})},
		"become": {3, after(func(r *run, a []string) { // number, of the socket, as name
			h, other := r.handle(a[0]), r.handle(a[1])
			r.handles[a[3]] = r.own(r.become(h.Handle(), other))
			if peer := r.peers[other]; peer != nil {
				r.peers[peer] = r.handles[a[3]]
			}
		})},

		// Calls on sockets.
		"bind": {1, after(func(r *run, a []string) {
			for _, name := range a {
				r.must(r.socket(name).Bind(sock.Loopback))
			}
		})},
		"listen":  {1, after((*run).listen)},
		"connect": {2, after((*run).connectTo)},
		"accept": {1, after(func(r *run, a []string) { // of client as name, or into name
			l := r.socket(a[0])
			if _, want := outcome(a); want != nil { // of what is there
				_, err := l.Socket.Accept()
				r.errors(err, want)
				return
			}
			settle(r.env, l, stateIn)
			if len(a) > 2 && a[1] == "into" { // the same Socket again
				r.must(l.AcceptInto(r.into(a[2])))
				return
			}
			s := r.keep(l.Socket.Accept())
			for i := 1; i+1 < len(a); i += 2 {
				switch a[i] {
				case "of":
					r.peers[s], r.peers[r.handle(a[i+1])] = r.handle(a[i+1]), s
				case "as":
					r.handles[a[i+1]] = s
				}
			}
		})},
		"send": {2, after(func(r *run, a []string) {
			what, want := outcome(a)
			if want == nil {
				r.sendTo(r.handle(what[0]), r.text(what[1:]))
				return
			}
			_, err := r.socket(what[0]).Send([]byte(r.string(what[1])))
			r.errors(err, want)
		})},
		"deliver": {2, after(func(r *run, a []string) {
			r.sendTo(r.handle(a[0]), r.text(a[1:]))
			settle(r.env, r.peer(a[0]), stateIn)
		})},
		"send-empty":  {1, after(func(r *run, a []string) { r.sendEmpty(r.handle(a[0])) })},
		"send-urgent": {1, after(func(r *run, a []string) { r.sendUrgent(r.handle(a[0])) })},
		"refuse": {1, after(func(r *run, a []string) { // a UDP socket has the error of a refused datagram
			s := r.socket(a[0])
			r.send(s, "to no one")
			settle(r.env, s, stateErr)
		})},
		"drain":    {1, after((*run).drain)},
		"received": {2, after((*run).received)},
		"receive":  {2, after((*run).receive)},
		"read-deadline": {2, after(func(r *run, a []string) { // how long from now, or none
			end := time.Time{}
			if a[1] != "none" {
				end = time.Now().Add(r.timeout(a[1]))
			}
			r.must(r.handle(a[0]).(netConn).SetReadDeadline(end))
		})},
		"fill": {1, after(func(r *run, a []string) { r.fill(r.socket(a[0])) })},
		"error": {2, after(func(r *run, a []string) {
			r.errors(r.socket(a[0]).Err(), a[1:])
		})},
		"take-error": {1, after(func(r *run, a []string) {
			s := r.socket(a[0])
			for end := time.Now().Add(2 * time.Second); s.Err() == nil && time.Now().Before(end); {
				await.Pause(time.Millisecond)
			}
		})},
		"arrived": {2, after(func(r *run, a []string) {
			st, ok := mask(a[1], stateNames)
			if !ok {
				r.Fatalf("unknown state %q", a[1])
			}
			settle(r.env, r.handle(a[0]), st)
		})},

		// How sockets end.
		"close": {1, after(func(r *run, a []string) {
			r.closeHandle(r.handle(a[0]))
		})},
		"end": {1, after(func(r *run, a []string) { // close, and wait until the peer has it
			peer := r.peer(a[0])
			r.closeHandle(r.handle(a[0]))
			settle(r.env, peer, statePeerClosed)
		})},
		"shut": {1, after(func(r *run, a []string) {
			r.must(r.socket(a[0]).Shutdown(sock.ShutWrite))
			settle(r.env, r.peer(a[0]), statePeerClosed)
		})},
		"reset": {1, after(func(r *run, a []string) { r.reset(r.peer(a[0]), r.socket(a[0])) })},
		"shutdown": {2, after(func(r *run, a []string) {
			a, want := outcome(a)
			how, ok := map[string]sock.How{"read": sock.ShutRead, "write": sock.ShutWrite, "both": sock.ShutBoth}[a[1]]
			if !ok {
				r.Fatalf("unknown direction %q", a[1])
			}
			r.errors(r.socket(a[0]).Shutdown(how), want)
		})},
		"shut-listener": {1, after(func(r *run, a []string) { r.shutListener(r.handle(a[0])) })},

		// Operations.
		"Recv":       {3, (*run).call},
		"RecvFrom":   {3, (*run).call},
		"RecvPooled": {3, (*run).call},
		"Send":       {3, (*run).call},
		"SendTo":     {4, (*run).call},
		"Connect":    {3, (*run).call},
		"AcceptEx":   {3, (*run).call},
		"Nothing":    {0, (*run).call}, // a zero Request
		"ReadAt":     {4, (*run).startFiles},
		"WriteAt":    {4, (*run).startFiles},
		"Cancel": {1, after(func(r *run, a []string) {
			what, want := outcome(a)
			r.errors(overlapped.Cancel(r.p(), r.op(what[0])), want)
		})},
		"completed": {1, after((*run).completed)},
		"from": {2, after(func(r *run, a []string) {
			if got, want := r.operation(a[0]).o.Addr(), r.socket(a[1]).LocalAddr(); got != want {
				r.Fatalf("want %v, got %v", want, got)
			}
		})},
		"pool": {2, after(func(r *run, a []string) { r.pools[a[0]] = overlapped.NewBuffers(r.number(a[1])) })},
		"put": {2, after(func(r *run, a []string) { // the buffer of an operation, or "length/capacity"
			n, most, isNew := strings.Cut(a[0], "/")
			if isNew {
				r.pools[a[1]].Put(make([]byte, r.number(n), r.number(most)))
			} else {
				r.pools[a[1]].Put(r.operation(a[0]).o.Buffer())
			}
		})},
		"no-buffer": {1, after(func(r *run, a []string) {
			for _, name := range a {
				if b := r.operation(name).o.Buffer(); b != nil {
					r.Fatalf("want no buffer, got one of %d bytes", len(b))
				}
			}
		})},

		// Connections as notifications.
		"Accept": {2, after(func(r *run, a []string) {
			what, want := outcome(a)
			l := r.sockOf(what[0])
			key := what[0]
			if len(what) > 2 {
				key = what[2]
			}
			r.errors(r.p().Accept(l, r.key(key), r.number(what[1])), want)
		})},
		"dial": {3, after(func(r *run, a []string) { // listener as name
			l, c := r.socket(a[0]), r.fresh()
			r.connect(c, l.LocalAddr())
			settle(r.env, c, stateOut)
			settle(r.env, l, stateIn)
			r.handles[a[2]] = c
		})},
		"accepted": {1, after(func(r *run, a []string) { // key [of client [as name]], or key fails
			if len(a) > 1 && a[1] == "fails" {
				got := r.next()
				s, err := got.Accepted()
				var failed *sock.Error
				if keyName(got.Key) != a[0] || got.Events != bad || s != nil || !errors.As(err, &failed) {
					r.Fatalf("notification %v, accepted %v, %T %v; want ERR and a *sock.Error", got.Events, s, err, err)
				}
				return
			}
			s := r.env.accepted(r.next(), r.key(a[0]))
			if len(a) < 3 {
				s.Close()
				return
			}
			client := r.socket(a[2])
			if s.RemoteAddr() != client.LocalAddr() {
				r.Fatalf("want the connection of %v, got that of %v", client.LocalAddr(), s.RemoteAddr())
			}
			r.peers[s], r.peers[client] = client, s
			if len(a) > 4 {
				r.handles[a[4]] = s
			}
		})},

		// Facts.
		"watch":  {1, after((*run).watch)},
		"report": {0, after((*run).report)},

		// Package debug.
		"snapshot":  {1, after((*run).snapshot)},
		"page":      {1, after((*run).page)},
		"pages":     {2, after((*run).pages)},
		"addresses": {1, after((*run).addresses)},
		"observe":   {1, after(func(r *run, a []string) { r.stops[a[0]] = debug.Observe(r.p()) })},
		"trace": {1, after(func(r *run, a []string) {
			tr := debug.StartTrace(r.p())
			r.traces[a[0]], r.stops[a[0]] = tr, tr.Close
		})},
		"traced": {1, after((*run).traced)},
		"stop":   {1, after(func(r *run, a []string) { r.stops[a[0]]() })},
	}
}

func pairs(make func(*env) (a, b *socket)) verb {
	return verb{1, after(func(r *run, a []string) {
		x, y := make(r.env)
		r.pair(a, x, y)
	})}
}

func singles(make func(*env) *socket) verb {
	return verb{1, after(func(r *run, a []string) {
		for _, name := range a {
			r.handles[name] = make(r.env)
		}
	})}
}

// into returns the Socket of a name that a connection is accepted into. It is made if it is new.
func (r *run) into(name string) *sock.Socket {
	if r.handles[name] == nil {
		r.handles[name] = r.keep(new(sock.Socket), nil)
	}
	return r.socket(name).Socket
}

// scribble is what the caller writes to buffers that are its own.
const scribble = 0xa5

// intact checks that nothing else has written to them.
func (r *run) intact() {
	for _, b := range r.scribbled {
		if bytes.Count(b, []byte{scribble}) != len(b) {
			r.Fatalf("a buffer was written to after its port was closed")
		}
	}
}

func (r *run) sendTo(h handle, data []byte) {
	switch s := h.(type) {
	case *socket:
		r.sendBytes(s, data)
	case netConn:
		_, err := s.Write(data)
		r.must(err)
	default:
		r.write(h, string(data))
	}
}

func (r *run) listen(a []string) {
	s := r.socket(a[0])
	if s.path != "" {
		r.must(s.BindUnix(s.path))
	}
	r.must(s.Listen(4))
}

func (r *run) connectTo(a []string) {
	if l := r.socket(a[1]); l.path != "" {
		r.must(r.socket(a[0]).ConnectUnix(l.path))
	} else {
		r.connect(r.socket(a[0]), l.LocalAddr())
	}
}

// own closes a handle at the end, unless the script has.
func (e *env) own(f fd) fd {
	if e.owned == nil {
		e.owned = make(map[fd]bool)
	}
	e.owned[f] = true
	e.Cleanup(func() { e.closeOwn(f) })
	return f
}

func (e *env) closeHandle(h handle) {
	if f, ok := h.(fd); ok {
		e.closeOwn(f)
	} else {
		h.(io.Closer).Close()
	}
}

func (e *env) closeOwn(f fd) {
	if e.owned[f] {
		delete(e.owned, f)
		e.closeFD(f)
	}
}
