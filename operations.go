package socknotify

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"unsafe"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/tie"
	"github.com/socknotify/socknotify/sock"
)

var (
	errOperating  = errors.New("operations of the socket are in flight")
	errRegistered = errors.New("the socket has a registration; remove it first")
)

// operations are those in flight on one socket, under its slot's lock. The first of a direction is the one
// that is being carried out.
type operations[K comparable] struct {
	recvs, sends opList[K]
	connects     int // among the sends
}

// idle reports whether there are none.
func (ops *operations[K]) idle() bool { return ops.recvs.first == nil && ops.sends.first == nil }

func (ops *operations[K]) list(d tie.Dir) *opList[K] {
	if d == tie.Send {
		return &ops.sends
	}
	return &ops.recvs
}

// awaited is what has to happen for the first operations to go on.
func (ops *operations[K]) awaited() Events {
	var f Events
	if ops.recvs.first != nil && ops.connects == 0 {
		f |= EventIn
	}
	if ops.sends.first != nil {
		f |= EventOut
	}
	return f
}

type opList[K comparable] struct{ first, last *Overlapped[K] }

func (l *opList[K]) push(o *Overlapped[K]) {
	if l.last == nil {
		l.first = o
	} else {
		l.last.next = o
	}
	l.last = o
}

// remove takes an operation out, mostly the first.
func (l *opList[K]) remove(o *Overlapped[K]) {
	var before *Overlapped[K]
	for at := l.first; at != o; at = at.next {
		before = at
	}
	if before == nil {
		l.first = o.next
	} else {
		before.next = o.next
	}
	if l.last == o {
		l.last = before
	}
	o.next = nil
}

// direction is whose list a kind of operation belongs to.
func (k opKind) direction() tie.Dir {
	if k.sends() {
		return tie.Send
	}
	return tie.Recv
}

// maxTurn is after how many bytes a socket's operations let others have their turn.
const maxTurn = 1 << 20

// An outlet is where completions go: into a call's entries, if the operations that were completed earlier have
// all been dequeued, and into the queue, behind those, otherwise (O3).
type outlet[K comparable] struct {
	p      *Port[K]
	out    []Notification[K]
	n      int
	queued bool
}

// complete ends an operation that has its result and is on no list any more. Its place's lock is held.
func (t *outlet[K]) complete(o *Overlapped[K]) {
	nt := Notification[K]{Key: o.key, Data: uintptr(o.n), kind: completion, of: unsafe.Pointer(o)}
	o.forget()
	t.observe(o.at.Swap(0))
	// Completions of one socket are queued under its lock, so none is in a queue that is empty now.
	if t.n < len(t.out) && !t.p.queue.any() {
		o.end()
		t.out[t.n] = nt
		t.n++
		return
	}
	t.queued = true
	t.p.queue.push(nt)
}

// observe records a completion, where somebody observes.
func (t *outlet[K]) observe(at uint32) {
	if ob := t.p.core.observer.Load(); ob != nil && at != 0 && at != atFile {
		ob.note(ob.of(at-1), millis(), at-1, EventNone, TraceCompleted)
	}
}

// operateOn carries out operations that a report says something for. more says that the kernel has to look
// again. The slot is locked.
func (p *Port[K]) operateOn(w *call[K], s *slot[K], reg *record[K], held sock.Held, m kernel.Mask, out []Notification[K]) (n int, more bool) {
	t := reg.tie
	t.Notified(notify(t, m)) // what would have blocked before the report was taken need not any more
	to := outlet[K]{p: p, out: out}
	h := t.Handle()
	d := moved(m)
	more = p.operate(&reg.work.operations, s, t, held, h, d, &to)
	w.stripe.completions.Add(uint64(to.n))
	f := reg.work.awaited()
	watched := wordFilter(s.word.Load())
	switch {
	case f == EventNone:
	case p.core.edges && f&^watched == 0:
	case p.core.edges:
		s.update(func(v uint64) uint64 { return v | uint64(f) })
		more = true
	default:
		// The kernel is silent now, and has to be told what is still waited for.
		s.update(func(v uint64) uint64 { return v&^wFilter | uint64(f) })
		if d&waiting(f) != 0 && p.stands(h, s) {
			p.later(longWhile, uint32(h))
			return to.n, false
		}
		more = true
	}
	return to.n, more
}

// moved are the directions that a report says something for.
func moved(m kernel.Mask) tie.Dir {
	var d tie.Dir
	if m&(kernel.In|kernel.Urgent|kernel.PeerClosed|kernel.Dead|kernel.Err) != 0 {
		d |= tie.Recv
	}
	if m&(kernel.Out|kernel.Dead|kernel.Err) != 0 {
		d |= tie.Send
	}
	return d
}

func waiting(f Events) tie.Dir {
	var d tie.Dir
	if f&EventIn != 0 {
		d |= tie.Recv
	}
	if f&EventOut != 0 {
		d |= tie.Send
	}
	return d
}

// operate carries out what is first in these directions, and then what follows, as far as that goes without
// blocking. more says that it stopped before that, for the others' sake.
func (p *Port[K]) operate(ops *operations[K], s *slot[K], t *tie.Tie, held sock.Held, h Socket, d tie.Dir, to *outlet[K]) (more bool) {
	if d&tie.Send != 0 {
		connecting := ops.connects > 0
		more = p.operateIn(ops, s, t, held, h, tie.Send, to)
		if connecting && ops.connects == 0 {
			d |= tie.Recv // they have waited for that
		}
	}
	if d&tie.Recv != 0 && ops.connects == 0 {
		more = p.operateIn(ops, s, t, held, h, tie.Recv, to) || more
	}
	return more
}

func (p *Port[K]) operateIn(ops *operations[K], s *slot[K], t *tie.Tie, held sock.Held, h Socket, d tie.Dir, to *outlet[K]) (more bool) {
	l := ops.list(d)
	for room := maxTurn; l.first != nil; {
		o := l.first
		if o.kind != opConnect && t.Drained(d) {
			return false // and if anything has come since, the kernel reports it
		}
		had := o.n
		done := p.attempt(o, s, held, h)
		room -= o.n - had
		switch {
		case done:
			l.remove(o)
			if o.kind == opConnect {
				ops.connects--
			}
			to.complete(o)
		case room > 0:
			return false
		}
		if room <= 0 {
			return l.first != nil
		}
	}
	return false
}

// attempt makes an operation's system call, and tells whether that was the end of it. It is not where the
// call would have blocked, or there is more to be sent.
func (p *Port[K]) attempt(o *Overlapped[K], s *slot[K], held sock.Held, h Socket) (done bool) {
	var n int
	var err error
	switch o.kind {
	case opRecv, opRecvFrom:
		if len(o.buf) == 0 {
			stream := s.word.Load()&wStream != 0
			return meaning(p.core.kernel.Look(h), EventIn|EventHangup, stream) != EventNone
		}
		if o.kind == opRecv {
			n, err = held.Recv(o.buf)
		} else {
			n, o.addr, err = held.Socket().RecvFrom(o.buf)
		}
	case opSend:
		for room := maxTurn; ; {
			n, err = held.Send(o.buf[o.n:])
			if err != nil || n == len(o.buf)-o.n {
				break
			}
			o.n += n
			if room -= n; room <= 0 {
				return false
			}
		}
	case opSendTo:
		if err = held.Socket().SendTo(o.buf, o.addr); err == nil {
			n = len(o.buf)
		}
	case opConnect:
		err = o.connect(held.Socket())
	}
	if err == sock.ErrWouldBlock {
		return false
	}
	o.n += n
	o.err = o.cause(h, err)
	return true
}

// connect begins to connect, or finds out what has come of it. A report alone says nothing: it may be from
// before.
func (o *Overlapped[K]) connect(s *sock.Socket) error {
	if !o.begun {
		o.begun = true
		return s.Connect(o.addr)
	}
	if err := s.Err(); err != nil || s.RemoteAddr().IsValid() {
		return err
	}
	return sock.ErrWouldBlock
}

// notStarted is the error of a start that create or mismatch has refused.
func (o *Overlapped[K]) notStarted(h Socket, err error) error {
	var of *OpError
	if !errors.As(err, &of) {
		return err
	}
	return &OverlappedError{Op: o.kind.String(), Socket: h, Kind: of.Kind, Err: of.Err}
}

// cause is the error of an operation's result.
func (o *Overlapped[K]) cause(h Socket, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	var of *sock.Error
	if errors.As(err, &of) {
		err = of.Err // which socket and call is said once
	}
	e := &OverlappedError{Op: o.kind.String(), Socket: h, Err: err}
	if errors.Is(err, net.ErrClosed) {
		e.Kind = ErrBadSocket
	}
	return e
}

// abortAll completes all operations on a socket with an error. The slot is locked.
func (p *Port[K]) abortAll(ops *work[K], index uint32, why error) {
	to := outlet[K]{p: p}
	for _, l := range [...]*opList[K]{&ops.sends, &ops.recvs} {
		for l.first != nil {
			o := l.first
			l.remove(o)
			o.err = o.cause(Socket(index), why)
			to.complete(o)
		}
	}
	ops.connects = 0
	if to.queued {
		p.parking.wakeOne(p.core, nil)
	}
}

// cancelAt ends an operation that waits for a socket. false says that it is there no longer.
func (p *Port[K]) cancelAt(o *Overlapped[K], at uint32) bool {
	index := at - 1
	s := p.table.lookup(index)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.at.Load() != at || o.core.Load() != p.core {
		return false
	}
	ops := s.reg.Load().work
	ops.list(o.kind.direction()).remove(o)
	connect := o.kind == opConnect
	if connect {
		ops.connects--
	}
	o.err = &OverlappedError{Op: o.kind.String(), Socket: Socket(index), Kind: ErrCanceled}
	to := outlet[K]{p: p}
	to.complete(o)
	p.parking.wakeOne(p.core, nil)
	if f := ops.awaited(); connect && f != EventNone {
		// What has waited for it goes on. The kernel may have reported what that needs already.
		s.update(func(v uint64) uint64 { return v | uint64(f) })
		p.askAgain(s, index, wEnabled|wOverlapped)
	}
	return true
}

// claim makes an operation one that is being started, with what it has in common with others.
func (p *Port[K]) claim(kind opKind, key K, b []byte, o *Overlapped[K]) error {
	switch {
	case p.core.closed.Load():
		return ErrClosed
	case o == nil:
		return callError(kind.call(), "a nil Overlapped")
	case !o.claim(p.core):
		return callError(kind.call(), "the Overlapped is in flight")
	}
	o.kind, o.begun, o.n, o.err = kind, false, 0, nil
	o.key, o.buf = key, b
	return nil
}

// start begins an operation on a socket.
func (p *Port[K]) start(kind opKind, s *sock.Socket, key K, b []byte, to netip.AddrPort, o *Overlapped[K]) error {
	if s == nil && !p.core.closed.Load() {
		return callError(kind.call(), "a nil socket")
	}
	if err := p.claim(kind, key, b, o); err != nil {
		return err
	}
	o.addr = to
	err := p.submit(s, o)
	if err != nil {
		o.forget()
		o.end()
	}
	runtime.KeepAlive(p)
	return err
}

// submit gives an operation to its socket, which is in use meanwhile.
func (p *Port[K]) submit(s *sock.Socket, o *Overlapped[K]) error {
	held, err := s.Hold()
	if err != nil {
		return o.cause(noSocket, err)
	}
	defer held.Release() // after the unlock: it may be the one that closes
	w := p.begin()
	if w == nil {
		return ErrClosed
	}
	defer p.end(w)
	h := s.Handle()
	if h > maxIndex {
		return &OverlappedError{Op: o.kind.String(), Socket: h, Kind: ErrBadSocket}
	}
	index := uint32(h)
	sl := p.table.at(index)
	sl.mu.Lock()
	defer sl.mu.Unlock()
	d := o.kind.direction()
	reg := sl.reg.Load()
	if sl.word.Load()&wOverlapped == 0 || reg.tie != s.Tie() {
		if err := p.associate(w, sl, s, h, d); err != nil {
			return o.notStarted(h, err)
		}
		reg = sl.reg.Load()
	}
	ops := &reg.work.operations
	l := ops.list(d)
	l.push(o)
	o.at.Store(index + 1)
	if o.kind == opConnect {
		ops.connects++
	}
	if l.first != o {
		return nil // what it waits for is waited for already
	}
	to := outlet[K]{p: p}
	more := p.operate(ops, sl, s.Tie(), held, h, d, &to)
	if l.first != nil {
		p.await(w, sl, ops, index)
	}
	if more {
		p.askAgain(sl, index, wEnabled|wOverlapped)
	}
	if to.queued {
		p.parking.wakeOne(p.core, nil)
	}
	return nil
}

// associate makes the port watch a socket for operations. The slot is locked.
func (p *Port[K]) associate(w *call[K], sl *slot[K], s *sock.Socket, h Socket, d tie.Dir) error {
	r := &Registration[K]{Sock: s, Op: OpEnable, Trigger: TriggerLevel, work: &work[K]{socket: s}}
	if r.Filter = EventIn; d == tie.Send {
		r.Filter = EventOut
	}
	switch was := sl.word.Load(); {
	case was&wRegistered == 0:
		return p.create(w, sl, r, h)
	case was&wOverlapped != 0: // of another socket, which is closed
		return p.mismatch(w, sl, r, h, ErrBadSocket, nil)
	default:
		return p.mismatch(w, sl, r, h, ErrInvalid, errRegistered)
	}
}

// dissociate ends that, for a socket without operations in flight. The slot is locked.
func (p *Port[K]) dissociate(w *call[K], s *slot[K], index uint32) {
	p.forget(w.stripe, s, index)
	w.single[0] = kernel.Change{Handle: Socket(index), Action: kernel.Delete}
	p.core.kernel.Poll(w.single[:], nil)
	p.core.unclaim(index)
}

// contested answers another port that asks for a number: a socket without operations in flight is given up
// (O11).
func (p *Port[K]) contested(index uint32) (has, busy bool, err error) {
	if s := p.table.lookup(index); s != nil && s.word.Load()&wOverlapped != 0 && s.mu.TryLock() {
		if reg := s.reg.Load(); s.word.Load()&wOverlapped != 0 && reg.work.idle() {
			p.forget(&p.core.stripes[0], s, index)
			p.core.kernel.Poll([]kernel.Change{{Handle: Socket(index), Action: kernel.Delete}}, nil)
		}
		s.mu.Unlock()
	}
	return p.probe(index)
}

// await has the kernel report what the first operations wait for. The slot is locked.
func (p *Port[K]) await(w *call[K], s *slot[K], ops *operations[K], index uint32) {
	f := ops.awaited()
	was := s.word.Load()
	if p.core.edges {
		if f&^wordFilter(was) == 0 {
			return // it does, from when the kernel was last asked
		}
		f |= wordFilter(was)
	}
	_, is := s.update(func(v uint64) uint64 { return nextEpoch(v, flagMask&^wFilter, uint64(f)) })
	c := &w.single[0]
	*c = kernel.Change{Handle: Socket(index), Action: kernel.Set, Token: token(is, index), Interest: p.core.interest(is)}
	p.core.kernel.Poll(w.single[:], nil)
	switch c.Status {
	case kernel.Done:
	case kernel.Absent, kernel.Bad: // closed behind the back of its sock.Socket
		p.forget(w.stripe, s, index)
		p.core.unclaim(index)
	default:
		p.later(longWhile, index)
	}
}

// interest is what the kernel must watch for a word that stays as it is. A kernel without edges would go on
// reporting what no operation waits for.
func (c *core) interest(word uint64) kernel.Mask {
	if word&wOverlapped == 0 || c.edges {
		return untold(word)
	}
	var m kernel.Mask
	if wordFilter(word)&EventIn != 0 {
		m |= kernel.In | kernel.PeerClosed
	}
	if wordFilter(word)&EventOut != 0 {
		m |= kernel.Out
	}
	return m
}
