package overlapped

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/errno"
	"github.com/socknotify/socknotify/internal/test/qemu"
	"github.com/socknotify/socknotify/internal/test/wine"
	"github.com/socknotify/socknotify/sock"
)

// A modelOp is an operation and what the model knows of it.
type modelOp struct {
	o        Op[*modelOp]
	pool     *Buffers
	b        []byte
	send     bool
	inFlight bool
	canceled bool
}

// An operationsModel is one socket with operations, its peer, and what must become of them.
type operationsModel struct {
	p       *socknotify.Port[*modelOp]
	s, peer *sock.Socket
	ops     [10]modelOp
	recvs   []*modelOp // in flight, in the order of their starts
	sends   []*modelOp
	sent    []byte // by the peer, and not received yet
	ended   bool   // the peer has shut its direction
	reset   bool   // the peer has reset the connection
	forgot  bool   // the port does not know of the reset: the socket was registered since, or the system forgot it
	closed  bool
	expect  []byte // by completed sends and parts of canceled ones, and has not arrived yet
	arrived []byte // and belongs to sends that have not completed yet
	next    byte
	pools   [5]*Buffers // by size
	tcp     bool        // what the peer does may arrive a little later
}

func newOperationsModel(p *socknotify.Port[*modelOp], s, peer *sock.Socket) *operationsModel {
	m := &operationsModel{p: p, s: s, peer: peer}
	for size := range m.pools {
		m.pools[size] = NewBuffers(size)
	}
	return m
}

func (m *operationsModel) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = m.next
		m.next++
	}
	return b
}

// draw draws an operation to start: one that is not in flight, or one that is.
func (m *operationsModel) draw(t *rapid.T) (op *modelOp, send bool, entry Request[*modelOp]) {
	op = &m.ops[rapid.IntRange(0, len(m.ops)-1).Draw(t, "op")]
	send = rapid.Bool().Draw(t, "send")
	b := op.b
	if send {
		n := rapid.SampledFrom([]int{0, 1, 10, 300_000}).Draw(t, "length")
		if !op.inFlight && !m.closed {
			b = m.bytes(n)
		}
		return op, send, SendRequest(m.s, op, b, &op.o)
	}
	pool := op.pool
	if size := rapid.IntRange(0, 4).Draw(t, "length"); !op.inFlight {
		b, pool = make([]byte, size), nil
		if size > 0 && rapid.Bool().Draw(t, "pooled") {
			b, pool = nil, m.pools[size]
		}
	}
	if pool != nil {
		return op, send, RecvPooledRequest(m.s, op, pool, &op.o)
	}
	return op, send, RecvRequest(m.s, op, b, &op.o)
}

// start starts one by itself.
func (m *operationsModel) start(t *rapid.T) {
	op, send, entry := m.draw(t)
	var err error
	switch {
	case send:
		err = Send(m.p, m.s, op, entry.buf, &op.o)
	case entry.pool != nil:
		err = RecvPooled(m.p, m.s, op, entry.pool, &op.o)
	default:
		err = Recv(m.p, m.s, op, entry.buf, &op.o)
	}
	m.started(t, op, send, &entry, err)
}

// batch starts several, and may dequeue in the same call.
func (m *operationsModel) batch(t *rapid.T) {
	var entries []Request[*modelOp]
	var ops []*modelOp
	var sends []bool
	for range rapid.IntRange(1, 6).Draw(t, "entries") {
		op, send, entry := m.draw(t)
		if slices.Contains(ops, op) {
			continue // whether it is in flight by then is the port's to say
		}
		entry.Result = io.ErrNoProgress
		ops, sends, entries = append(ops, op), append(sends, send), append(entries, entry)
	}
	out := make([]socknotify.Notification[*modelOp], rapid.IntRange(0, 3).Draw(t, "room"))
	n, err := Process(m.p, entries, out, 0)
	if err != nil && (err != socknotify.ErrTimeout || len(out) == 0) {
		t.Fatal(err)
	}
	for i, op := range ops {
		m.started(t, op, sends[i], &entries[i], entries[i].Result)
	}
	for _, nt := range out[:n] {
		m.completed(t, nt)
	}
}

// started checks what has come of a start.
func (m *operationsModel) started(t *rapid.T, op *modelOp, send bool, entry *Request[*modelOp], err error) {
	switch {
	case op.inFlight:
		if !errors.Is(err, socknotify.ErrInvalid) {
			t.Fatalf("started while in flight: %v", err)
		}
		return
	case m.closed:
		if !errors.Is(err, net.ErrClosed) {
			t.Fatalf("started on a closed socket: %v", err)
		}
		return
	case err != nil:
		t.Fatalf("not started: %v", err)
	}
	op.b, op.pool, op.send, op.inFlight, op.canceled = entry.buf, entry.pool, send, true, false
	if send {
		m.sends = append(m.sends, op)
	} else {
		m.recvs = append(m.recvs, op)
	}
}

// completed checks one completion.
func (m *operationsModel) completed(t *rapid.T, nt socknotify.Notification[*modelOp]) {
	op := nt.Key
	if op == nil || Of(&nt) != &op.o || !op.inFlight {
		t.Fatalf("%+v is no completion of what is in flight", nt)
	}
	op.inFlight = false
	n, err := op.o.Result()
	if nt.Events != 0 || nt.Data != uintptr(n) {
		t.Fatalf("%+v; want %d bytes", nt, n)
	}
	list := &m.recvs
	if op.send {
		list = &m.sends
	}
	dead := errors.Is(err, ErrCanceled) && op.canceled || errors.Is(err, net.ErrClosed) && m.closed
	at := 0
	for (*list)[at] != op {
		// Those before it may be completed later only if this one was ended from outside.
		if !dead && !(*list)[at].canceled {
			t.Fatalf("completed before one that was started earlier: %d, %v", n, err)
		}
		at++
	}
	*list = append((*list)[:at:at], (*list)[at+1:]...)
	if !op.send && op.pool != nil {
		if op.b = op.o.Buffer(); len(op.b) != n || (op.b == nil) != (n == 0) {
			t.Fatalf("received %d, %v; a buffer of %d", n, err, len(op.b))
		}
		defer op.pool.Put(op.b)
	}
	lost := m.reset && (qemu.Is(err, errno.Reset) || m.forgot && err != nil)
	if op.send {
		if !dead && !lost && (err != nil || n != len(op.b)) {
			t.Fatalf("sent %d of %d, %v", n, len(op.b), err)
		}
		m.expect = append(m.expect, op.b[:n]...)
		return
	}
	switch {
	case dead && n == 0:
	case lost && n == 0:
		m.sent = nil // nothing is received behind it
	case err == io.EOF && n == 0 && m.ended && len(m.sent) == 0:
	case err != nil || n > len(op.b) || n > len(m.sent) || n == 0 && (len(op.b) > 0 || op.pool != nil):
		t.Fatalf("received %d of %d, %v; %d are under way", n, len(op.b), err, len(m.sent))
	case !bytes.Equal(op.b[:n], m.sent[:n]):
		t.Fatalf("received %x; want %x", op.b[:n], m.sent[:n])
	default:
		m.sent = m.sent[n:]
	}
}

// take dequeues once, and tells how many came.
func (m *operationsModel) take(t *rapid.T, entries int, timeout time.Duration) int {
	out := make([]socknotify.Notification[*modelOp], entries)
	n, err := m.p.Process(nil, out, timeout)
	if err != nil && err != socknotify.ErrTimeout {
		t.Fatal(err)
	}
	for _, nt := range out[:n] {
		m.completed(t, nt)
	}
	return n
}

func (m *operationsModel) wait(t *rapid.T) {
	m.take(t, rapid.IntRange(1, 4).Draw(t, "entries"), 0)
}

// owed reports whether something must come.
func (m *operationsModel) owed() bool {
	over := m.closed || m.reset
	return len(m.recvs) > 0 && (len(m.sent) > 0 || m.ended || over) || len(m.sends) > 0 && over
}

// waitAll dequeues until nothing comes, when what waits must have a reason.
func (m *operationsModel) waitAll(t *rapid.T) {
	for m.take(t, 3, 0) > 0 {
	}
	late := m.tcp || wine.CompletesLate.Here()
	for end := time.Now().Add(soon); late && m.owed() && time.Now().Before(end); {
		m.take(t, 3, time.Millisecond)
	}
	if m.owed() {
		t.Fatalf("%d receives and %d sends wait; %d bytes, ended %t, reset %t, closed %t",
			len(m.recvs), len(m.sends), len(m.sent), m.ended, m.reset, m.closed)
	}
}

func (m *operationsModel) cancel(t *rapid.T) {
	m.cancelOp(t, &m.ops[rapid.IntRange(0, len(m.ops)-1).Draw(t, "op")])
}

func (m *operationsModel) cancelOp(t *rapid.T, op *modelOp) {
	err := Cancel(m.p, &op.o)
	if op.inFlight != (err == nil) || err != nil && err != ErrNotInFlight {
		t.Fatalf("Cancel, in flight %t: %v", op.inFlight, err)
	}
	op.canceled = op.inFlight
}

func (m *operationsModel) peerSends(t *rapid.T) {
	if !m.ended && !m.closed && !m.reset {
		b := m.bytes(rapid.IntRange(1, 9).Draw(t, "bytes"))
		if _, err := m.peer.Send(b); err != nil {
			t.Fatal(err)
		}
		m.sent = append(m.sent, b...)
	}
}

// peerReceives takes all there is. What it belongs to completes by and by.
func (m *operationsModel) peerReceives(t *rapid.T) {
	b := make([]byte, 64<<10)
	for {
		n, err := m.peer.Recv(b)
		if err != nil {
			break
		}
		m.arrived = append(m.arrived, b[:n]...)
	}
	m.match(t)
}

// match compares what has arrived with what was sent.
func (m *operationsModel) match(t *rapid.T) {
	n := min(len(m.arrived), len(m.expect))
	if !bytes.Equal(m.arrived[:n], m.expect[:n]) {
		t.Fatal("something else has arrived than was sent, or in another order")
	}
	m.arrived, m.expect = m.arrived[n:], m.expect[n:]
}

// peerReceivesAll lets every send complete.
func (m *operationsModel) peerReceivesAll(t *rapid.T) {
	for end := time.Now().Add(soon); len(m.sends) > 0; {
		m.peerReceives(t)
		m.take(t, 2, 0)
		if time.Now().After(end) {
			t.Fatalf("%d sends do not complete", len(m.sends))
		}
	}
	m.peerReceives(t)
	if m.match(t); !m.closed && !m.reset && len(m.arrived) > 0 {
		t.Fatalf("%d bytes too many have arrived", len(m.arrived))
	}
}

// resets has the peer abort the connection. Whatever is in flight, or is started later, ends with that error, but for
// what can be received still.
func (m *operationsModel) resets(t *rapid.T) {
	if !m.tcp || m.ended || m.closed || m.reset || rapid.IntRange(0, 3).Draw(t, "really") != 0 {
		return
	}
	m.reset, m.forgot = true, wine.ForgetsReset.Here()
	m.peer.SetLinger(0)
	m.peer.Close()
	for end := time.Now().Add(soon); port.Of(m.p).Core.Poller.PollOne(m.s.Handle())&(backend.Err|backend.Dead) == 0; {
		if time.Now().After(end) {
			t.Fatal("the reset does not arrive")
		}
	}
}

// register tries to make a registration, which only a socket without operations can have.
func (m *operationsModel) register(t *rapid.T) {
	regs := []socknotify.Registration[*modelOp]{socknotify.Enable(m.s, &m.ops[0], socknotify.EventIn, oneShot), socknotify.Remove[*modelOp](m.s)}
	m.waitAll(t)
	m.p.Process(regs, nil, 0)
	switch err := regs[0].Result; {
	case m.closed:
	case len(m.recvs)+len(m.sends) > 0:
		if !errors.Is(err, socknotify.ErrInvalid) {
			t.Fatalf("registered with operations in flight: %v", err)
		}
	case err != nil || regs[1].Result != nil:
		t.Fatalf("registered and removed: %v, %v", err, regs[1].Result)
	default:
		m.forgot = m.reset
		var out [1]socknotify.Notification[*modelOp]
		if n, _ := m.p.Process(nil, out[:], soon); n != 1 || out[0].Events != socknotify.EventRemove || out[0].Key != &m.ops[0] {
			t.Fatalf("%+v; want REMOVE", out)
		}
	}
}

// Random sequences of operations against a model of O1 to O5, O8, O9, O11, O13 and O14.
func TestOperationsModel(t *testing.T) {
	onEachOf(t, func(t *testing.T, p *socknotify.Port[*modelOp], _ *backendtest.Hooked) {
		port.Of(p).Core.HelpAfter = atOnce
		rapid.Check(t, func(t *rapid.T) {
			tcp := rapid.Bool().Draw(t, "tcp")
			pair := backendtest.Pair
			if tcp {
				pair = backendtest.TCPPair
			}
			s, peer, err := pair()
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
			defer s.Close()
			m := newOperationsModel(p, s, peer)
			m.tcp = tcp
			t.Repeat(map[string]func(*rapid.T){
				"start":     m.start,
				"and":       m.start,
				"batch":     m.batch,
				"wait":      m.wait,
				"wait all":  m.waitAll,
				"cancel":    m.cancel,
				"peer send": m.peerSends,
				"peer recv": m.peerReceives,
				"all":       m.peerReceivesAll,
				"register":  m.register,
				"reset":     m.resets,
				"end": func(t *rapid.T) {
					if rapid.IntRange(0, 4).Draw(t, "really") == 0 && !m.reset {
						m.ended = true
						peer.Shutdown(sock.ShutWrite)
					}
				},
				"close": func(t *rapid.T) {
					if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
						m.closed = true
						s.Close()
					}
				},
			})
			m.peerReceivesAll(t)
			m.closed = true
			s.Close()
			m.waitAll(t)
			if n := len(m.recvs) + len(m.sends); n != 0 {
				t.Fatalf("%d operations have never completed", n)
			}
		})
	})
}
