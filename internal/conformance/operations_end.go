package conformance

import (
	"bytes"
	"context"
	"errors"
	"net"
	"runtime"
	"sync/atomic"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/wine"
	"github.com/socknotify/socknotify/overlapped"
	"github.com/socknotify/socknotify/sock"
)

// O4 to O11: how operations on sockets end.
var operationEndChecks = []check{
	ofSocks("O4", "FirstBytes", recvFirstBytes),
	ofSocks("O4", "EndOfStream", recvEnd),
	ofSocks("O4", "Reset", recvReset),
	ofSocks("O4", "ResetBehindASend", recvResetBehindSend),
	ofSocks("O4", "ResetOfMany", resetOfMany),
	ofSocks("O4", "RefusedConnect", recvRefused),
	ofSocks("O4", "EndAfterReconnect", recvEndReconnected),
	ofSocks("O4", "NoBuffer", recvNoBuffer),
	ofSocks("O4", "Datagrams", recvDatagrams),
	ofSocks("O4", "NotConnected", recvNotConnected),
	ofSocks("O5", "AllOfIt", sendAll),
	ofSocks("O5", "CutShort", sendCutShort),
	ofSocks("O5", "ResetBehindAReceive", sendResetBehindRecv),
	ofSocks("O5", "RefusedConnect", sendRefused),
	ofSocks("O5", "Nothing", sendNothing),
	ofSocks("O5", "Datagrams", sendDatagrams),
	ofSocks("O6", "Connects", connects),
	ofSocks("O6", "Refused", connectRefused),
	ofSocks("O6", "Datagram", connectDatagram),
	ofSocks("O8", "Cancel", cancels),
	ofSocks("O8", "Wakes", cancelWakes),
	ofSocks("O8", "CompletedAlready", cancelsLate),
	ofSocks("O8", "PartOfASend", cancelsPart),
	ofSocks("O8", "NotInFlight", cancelsNothing),
	ofSocks("O8", "OneOfMany", cancelsOneOfMany),
	ofSocks("O8", "Races", cancelRaces),
	ofSocks("O9", "CloseSocket", closeUnderOperations),
	ofSocks("O9", "CloseRaces", closeSocketRaces),
	ofSocks("O10", "ClosePort", closePortUnderOperations),
	ofSocks("O10", "ClosePortRaces", closePortRaces),
	ofSocks("O10", "DroppedPort", dropPortUnderOperations),
	ofSocks("O11", "Registered", operateRegistered),
	ofSocks("O11", "InFlight", registerOperating),
	ofSocks("O11", "FreeAfterwards", registerAfterwards),
	ofSocks("O11", "NoRegistration", operationsAreNoRegistration),
}

func recvFirstBytes(e *env) {
	p := e.port()
	s, peer := e.tcp()
	var o op
	b := make([]byte, 1<<20)
	e.recv(p, s, "k", b, &o)
	e.deliver(peer, s, "first")
	e.received(p, "k", &o, b, "first")
	e.deliver(peer, s, "second")
	e.recv(p, s, "k", b[:3], &o)
	e.received(p, "k", &o, b, "sec")
	e.recv(p, s, "k", b, &o)
	e.received(p, "k", &o, b, "ond")
	e.recv(p, s, "k", b, &o)
	e.none(p)
}

func recvEnd(e *env) {
	p := e.port()
	for _, pair := range []func() (*socket, *socket){e.unix, e.tcp} {
		s, peer := pair()
		var o, second op
		b := make([]byte, 4)
		e.recv(p, s, "k", b, &o)
		e.recv(p, s, "k2", b, &second)
		e.shut(s, peer)
		if n := e.failed(p, "k", &o, endOfStream); n != 0 {
			e.Errorf("%d bytes", n)
		}
		e.failed(p, "k2", &second, endOfStream)
		e.recv(p, s, "k", b, &o)
		e.failed(p, "k", &o, endOfStream)
		e.startSend(p, s, "s", []byte("x"), &o) // this direction goes on
		e.moved(p, "s", &o)
	}
}

func recvReset(e *env) {
	p := e.port()
	for _, early := range []bool{true, false} {
		s, peer := e.tcp()
		var o op
		b := make([]byte, 4)
		if early {
			e.recv(p, s, "k", b, &o)
		}
		e.reset(s, peer)
		if !early {
			e.recv(p, s, "k", b, &o)
		}
		e.failed(p, "k", &o, errReset)
	}
}

// aborted are the ways to have a stream reset whose send is blocked: each makes a pair, and ends its peer.
func (e *env) aborted() map[string]func() (s, peer *socket, abort func()) {
	return map[string]func() (s, peer *socket, abort func()){
		"tcp": func() (*socket, *socket, func()) {
			s, peer := e.tcp()
			return s, peer, func() { e.reset(s, peer) }
		},
		"unix": func() (*socket, *socket, func()) {
			s, peer := e.unix()
			if s.RemoteAddr().IsValid() { // there are no Unix sockets
				return s, peer, func() { e.reset(s, peer) }
			}
			return s, peer, func() { peer.Close() } // it has not received everything
		},
	}
}

// tellsReset skips a case where the system forgets a reset.
func (e *env) tellsReset() {
	e.Helper()
	if wine.ForgetsReset.Here() {
		e.Skip(wine.ForgetsReset)
	}
}

// recvResetBehindSend has operations of both directions in flight when the connection is reset. The system reports
// the error to one of them.
func recvResetBehindSend(e *env) {
	e.tellsReset()
	for name, pair := range e.aborted() {
		p := e.port()
		s, peer, abort := pair()
		var recv, second, send, behind op
		b := make([]byte, 4)
		e.recv(p, s, "r", b, &recv)
		e.recv(p, s, "r2", nil, &second)
		e.startSend(p, s, "s", make([]byte, 8<<20), &send)
		e.startSend(p, s, "s2", b, &behind)
		e.none(p)
		abort()
		got := map[any]error{}
		for range 4 {
			n := e.next(p)
			_, got[n.Key] = overlapped.Of(&n).Result()
		}
		for _, k := range []string{"r", "s", "s2"} {
			if !errors.Is(got[k], errReset) {
				e.Errorf("%s: %s: %v", name, k, got[k])
			}
		}
		if got["r2"] != nil {
			e.Errorf("%s: a receive without buffer: %v", name, got["r2"])
		}
		// So does what is started later.
		for range 2 {
			e.recv(p, s, "r", b, &recv)
			e.failed(p, "r", &recv, errReset)
			e.startSend(p, s, "s", b, &send)
			e.failed(p, "s", &send, errReset)
		}
		peer.Close()
	}
}

// resetOfMany resets many connections at once, so that calls are made together where the kernel can. Some have
// unread data, which the error does not hide.
func resetOfMany(e *env) {
	e.tellsReset()
	p := e.port()
	type conn struct {
		s, peer    *socket
		recv, send op
		b          [4]byte
	}
	conns := make([]*conn, 12)
	for i := range conns {
		c := new(conn)
		conns[i] = c
		c.s, c.peer = e.tcp()
		e.startSend(p, c.s, c, make([]byte, 4<<20), &c.send)
		if i%3 == 0 {
			e.deliver(c.peer, c.s, "xy")
		}
	}
	e.none(p)
	for i, c := range conns {
		if i%2 == 0 {
			e.recv(p, c.s, c, c.b[:1], &c.recv)
		}
		e.reset(c.s, c.peer)
		if i%2 != 0 {
			e.recv(p, c.s, c, c.b[:1], &c.recv)
		}
	}
	receives := make(map[*conn]int)
	for left := 2 * len(conns); left > 0; left-- {
		n := e.next(p)
		c := n.Key.(*conn)
		moved, err := overlapped.Of(&n).Result()
		if overlapped.Of(&n) == &c.recv && err == nil && moved == 1 {
			receives[c]++
			e.recv(p, c.s, c, c.b[:1], &c.recv)
			left++
			continue
		}
		if !errors.Is(err, errReset) {
			e.Errorf("completed with %d, %v", moved, err)
		}
	}
	for i, c := range conns {
		if n := receives[c]; n != 0 && (i%3 != 0 || n > 2) {
			e.Errorf("%d bytes received", n)
		}
	}
	// Both directions are started in one call.
	for _, c := range conns {
		e.started(p, overlapped.SendRequest[any](c.s.Socket, "s", c.b[:], &c.send),
			overlapped.RecvRequest[any](c.s.Socket, "r", c.b[:], &c.recv))
		e.failed(p, "s", &c.send, errReset)
		e.failed(p, "r", &c.recv, errReset)
	}
}

// behindRefused starts operations behind a connect that fails, and returns their errors.
func (e *env) behindRefused(p *port, c *socket, start ...func(k any, o *op)) []error {
	e.Helper()
	var connect op
	if err := overlapped.Connect(p, c.Socket, "c", e.nowhere(sock.TCP4), &connect); err != nil {
		e.Fatalf("Connect: %v", err)
	}
	ops := make([]op, len(start))
	for i, f := range start {
		f(i, &ops[i])
	}
	e.failed(p, "c", &connect, errRefused)
	errs := make([]error, len(start))
	for range start {
		n := e.next(p)
		_, errs[n.Key.(int)] = overlapped.Of(&n).Result()
	}
	return errs
}

func recvRefused(e *env) {
	p := e.port()
	b := make([]byte, 4)
	c := e.fresh()
	recv := func(k any, o *op) { e.recv(p, c, k, b, o) }
	for i, err := range e.behindRefused(p, c, recv, recv) {
		if !errors.Is(err, errRefused) {
			e.Errorf("receive %d: %v", i, err)
		}
	}
	var later op
	recv("later", &later)
	e.failed(p, "later", &later, errRefused)
}

func sendRefused(e *env) {
	p := e.port()
	b := make([]byte, 4)
	c := e.fresh()
	recv := func(k any, o *op) { e.recv(p, c, k, b, o) }
	send := func(k any, o *op) { e.startSend(p, c, k, b, o) }
	for i, err := range e.behindRefused(p, c, send, recv, send) {
		if !errors.Is(err, errRefused) {
			e.Errorf("operation %d: %v", i, err)
		}
	}
	var later op
	send("later", &later)
	e.failed(p, "later", &later, errRefused)
}

// recvEndReconnected connects a socket whose first connect was refused: what ended that is forgotten.
func recvEndReconnected(e *env) {
	p := e.port()
	l := e.listener()
	b := make([]byte, 4)
	c := e.fresh()
	var recv, connect op
	e.behindRefused(p, c, func(k any, o *op) { e.recv(p, c, k, b, o) })
	for again := 0; ; again++ {
		if err := overlapped.Connect(p, c.Socket, "c", l.LocalAddr(), &connect); err != nil {
			e.Fatalf("Connect: %v", err)
		}
		_, err := e.result(e.next(p), "c", &connect)
		if err == nil {
			break
		}
		if again == 3 { // Linux says once that the connect before was aborted
			e.Skip("this system connects no socket again: ", err)
		}
	}
	settle(e, l, stateIn)
	e.shut(c, e.keep(l.Accept()))
	e.recv(p, c, "r", b, &recv)
	e.failed(p, "r", &recv, endOfStream)
}

// sendResetBehindRecv has a receive in flight take the error.
func sendResetBehindRecv(e *env) {
	e.tellsReset()
	for name, pair := range e.aborted() {
		p := e.port()
		s, _, abort := pair()
		e.fill(s)
		var recv, send op
		b := make([]byte, 4)
		e.recv(p, s, "r", b, &recv)
		e.none(p)
		abort()
		e.failed(p, "r", &recv, errReset)
		for range 2 {
			e.startSend(p, s, "s", b, &send)
			if _, err := e.result(e.next(p), "s", &send); !errors.Is(err, errReset) {
				e.Errorf("%s: %v", name, err)
			}
		}
	}
}

func recvNoBuffer(e *env) {
	p := e.port()
	for _, pair := range []func() (*socket, *socket){e.unix, e.tcp, e.datagrams} {
		s, peer := pair()
		var o, second op
		b := make([]byte, 8)
		for range 3 {
			e.recv(p, s, "k", nil, &o)
			e.recv(p, s, "k2", b, &second)
			e.none(p)
			e.deliver(peer, s, "x")
			e.received(p, "k", &o, nil, "")
			e.received(p, "k2", &second, b, "x")
		}
		e.deliver(peer, s, "y")
		e.recv(p, s, "k", nil, &o)
		e.received(p, "k", &o, nil, "")
		if data := e.drain(s); data != "y" {
			e.Fatalf("received %q", data)
		}
		e.recv(p, s, "k", nil, &o)
		e.none(p)
	}
	s, peer := e.tcp()
	var o op
	e.recv(p, s, "k", nil, &o)
	e.shut(s, peer)
	e.received(p, "k", &o, nil, "")
	e.recv(p, s, "k", []byte{0}, &o)
	e.failed(p, "k", &o, endOfStream)
}

func recvDatagrams(e *env) {
	p := e.port()
	for _, pair := range []func() (*socket, *socket){e.datagrams, e.udp} {
		s, peer := pair()
		var o op
		b := make([]byte, 4)
		for _, c := range []struct{ sent, want string }{{"ab", "ab"}, {"abcdef", "abcd"}, {"", ""}, {"xy", "xy"}} {
			e.recv(p, s, "k", b, &o)
			if c.sent == "" {
				e.sendEmpty(peer)
			} else {
				e.send(peer, c.sent)
			}
			e.received(p, "k", &o, b, c.want)
		}
	}
	s, peer := e.udp()
	var o op
	b := make([]byte, 4)
	if err := overlapped.RecvFrom(p, s.Socket, "k", b, &o); err != nil {
		e.Fatalf("RecvFrom: %v", err)
	}
	e.send(peer, "ab")
	e.received(p, "k", &o, b, "ab")
	if o.Addr() != peer.LocalAddr() {
		e.Errorf("from %v; want %v", o.Addr(), peer.LocalAddr())
	}
}

func recvNotConnected(e *env) {
	p := e.port()
	s := e.fresh()
	var o op
	e.recv(p, s, "k", make([]byte, 4), &o)
	e.failed(p, "k", &o)
	e.quiet(p)
}

func sendAll(e *env) {
	p := e.port()
	for _, pair := range []func() (*socket, *socket){e.unix, e.tcp} {
		s, peer := pair()
		var o op
		const size = 5 << 20
		b := bytes.Repeat([]byte("0123456789"), size/10)
		e.startSend(p, s, "k", b, &o)
		e.none(p) // no peer receives
		received := async(func() error {
			all := make([]byte, 0, size)
			for len(all) < len(b) {
				data, err := receiveAll(peer)
				if err != nil {
					return err
				}
				all = append(all, data...)
			}
			if !bytes.Equal(all, b) {
				return errors.New("something else has arrived")
			}
			return nil
		})
		if n := e.moved(p, "k", &o); n != len(b) {
			e.Errorf("sent %d of %d", n, len(b))
		}
		e.end(received, "receiving")
	}
}

func sendCutShort(e *env) {
	p := e.port()
	s, peer := e.tcp()
	var o, second op
	b := make([]byte, 8<<20)
	e.startSend(p, s, "k", b, &o)
	e.startSend(p, s, "k2", b, &second)
	e.none(p)
	e.reset(s, peer)
	if n := e.failed(p, "k", &o); n == 0 || n == len(b) {
		e.Errorf("sent %d of %d", n, len(b))
	}
	if n := e.failed(p, "k2", &second); n != 0 {
		e.Errorf("sent %d behind that", n)
	}
}

func sendNothing(e *env) {
	p := e.port()
	s, peer := e.unix()
	var o op
	e.startSend(p, s, "k", nil, &o)
	if n := e.moved(p, "k", &o); n != 0 {
		e.Errorf("sent %d", n)
	}
	var recv op
	e.recv(p, peer, "r", make([]byte, 1), &recv)
	e.none(p)
}

func sendDatagrams(e *env) {
	p := e.port()
	s, peer := e.udp()
	var o op
	for _, data := range []string{"x", "", "yy"} {
		e.startSend(p, s, "k", []byte(data), &o)
		if n := e.moved(p, "k", &o); n != len(data) {
			e.Fatalf("sent %d", n)
		}
		var recv op
		b := make([]byte, 4)
		e.recv(p, peer, "r", b, &recv)
		e.received(p, "r", &recv, b, data)
	}
	e.startSend(p, s, "k", make([]byte, 100_000), &o)
	e.failed(p, "k", &o)
	free := e.keep(sock.New(sock.UDP4))
	if err := overlapped.SendTo(p, free.Socket, "k", []byte("abc"), s.LocalAddr(), &o); err != nil {
		e.Fatalf("SendTo: %v", err)
	}
	if n := e.moved(p, "k", &o); n != 3 {
		e.Fatalf("sent %d", n)
	}
}

func connects(e *env) {
	p := e.port()
	l := e.listener()
	for range 3 {
		c := e.fresh()
		var o op
		if err := overlapped.Connect(p, c.Socket, "c", l.LocalAddr(), &o); err != nil {
			e.Fatalf("Connect: %v", err)
		}
		e.moved(p, "c", &o)
		e.send(c, "x")
		e.none(p)
		settle(e, l, stateIn)
		s := e.keep(l.Accept())
		if s.RemoteAddr() != c.LocalAddr() {
			e.Fatalf("connected %v", s.RemoteAddr())
		}
	}
}

func connectRefused(e *env) {
	p := e.port()
	to := e.nowhere(sock.TCP4)
	for range 3 {
		c := e.fresh()
		var o, recv op
		if err := overlapped.Connect(p, c.Socket, "c", to, &o); err != nil {
			e.Fatalf("Connect: %v", err)
		}
		e.recv(p, c, "r", make([]byte, 4), &recv)
		e.failed(p, "c", &o, errRefused)
		if n := e.failed(p, "r", &recv, errRefused); n != 0 {
			e.Fatalf("received %d", n)
		}
		e.quiet(p)
	}
}

func connectDatagram(e *env) {
	p := e.port()
	a, b := e.udp()
	var o op
	if err := overlapped.Connect(p, a.Socket, "c", b.LocalAddr(), &o); err != nil {
		e.Fatalf("Connect: %v", err)
	}
	e.moved(p, "c", &o)
}

func (e *env) cancel(p *port, o *op) {
	e.Helper()
	if err := overlapped.Cancel(p, o); err != nil {
		e.Fatalf("Cancel: %v", err)
	}
}

func cancels(e *env) {
	p := e.port()
	s, peer := e.unix()
	var o, send op
	b := make([]byte, 8)
	for range 3 {
		e.recv(p, s, "k", b, &o)
		e.cancel(p, &o)
		e.cancel(p, &o) // it is in flight until its completion is dequeued
		if n := e.failed(p, "k", &o, overlapped.ErrCanceled, context.Canceled); n != 0 {
			e.Errorf("%d bytes", n)
		}
		e.none(p)
	}
	// Nothing of what came is lost.
	e.deliver(peer, s, "x")
	e.recv(p, s, "k", b, &o)
	e.received(p, "k", &o, b, "x")
	e.fill(s)
	e.startSend(p, s, "s", []byte("y"), &send)
	e.cancel(p, &send)
	e.failed(p, "s", &send, overlapped.ErrCanceled)
	for e.drain(peer) != "" {
	}
	e.none(p)
}

func cancelWakes(e *env) {
	p := e.port()
	s, _ := e.unix()
	var o op
	b := make([]byte, 8)
	for waiters := range 3 {
		e.recv(p, s, "k", b, &o)
		var waits []<-chan result
		for range 1 + waiters {
			waits = append(waits, e.wait(p, 1, -1))
		}
		e.parked(p, len(waits))
		e.cancel(p, &o)
		e.until("one waiter has the completion", func() bool { return p.Stats().Waiting == waiters })
		for range waiters {
			if err := p.Post("p", 0); err != nil {
				e.Fatalf("Post: %v", err)
			}
		}
		completed := 0
		for _, w := range waits {
			for _, got := range e.get(w).notes {
				if got.Kind() == socknotify.KindPosted {
					continue
				}
				completed++
				_, err := e.result(got, "k", &o)
				e.wantErr(err, overlapped.ErrCanceled)
			}
		}
		if completed != 1 {
			e.Errorf("%d completions", completed)
		}
	}
}

func cancelsLate(e *env) {
	p := e.port()
	s, peer := e.unix()
	var o op
	b := make([]byte, 8)
	e.deliver(peer, s, "x")
	e.recv(p, s, "k", b, &o)
	e.cancel(p, &o)
	e.received(p, "k", &o, b, "x")
	e.wantErr(overlapped.Cancel(p, &o), overlapped.ErrNotInFlight)
	e.none(p)
}

func cancelsPart(e *env) {
	p := e.port()
	s, peer := e.unix()
	var o op
	b := make([]byte, 8<<20)
	e.startSend(p, s, "k", b, &o)
	e.none(p)
	e.cancel(p, &o)
	n := e.failed(p, "k", &o, overlapped.ErrCanceled)
	s.Close()
	got := 0
	for {
		data, err := receiveAll(peer)
		if got += len(data); err != nil {
			break
		}
	}
	if n == 0 || n != got {
		e.Errorf("sent %d, and %d arrived", n, got)
	}
}

func cancelsNothing(e *env) {
	p, q := e.port(), e.port()
	s, _ := e.unix()
	var o op
	e.wantErr(overlapped.Cancel(p, &o), overlapped.ErrNotInFlight)
	e.recv(p, s, "k", make([]byte, 8), &o)
	e.wantErr(overlapped.Cancel(q, &o), overlapped.ErrNotInFlight)
	e.cancel(p, &o)
	e.failed(p, "k", &o, overlapped.ErrCanceled)
	e.wantErr(overlapped.Cancel(p, &o), overlapped.ErrNotInFlight)
}

func cancelsOneOfMany(e *env) {
	for victim := range 3 {
		p := e.port()
		s, peer := e.unix()
		var ops [3]op
		var bufs [3][1]byte
		for i := range ops {
			e.recv(p, s, i, bufs[i][:], &ops[i])
		}
		e.cancel(p, &ops[victim])
		e.failed(p, victim, &ops[victim], overlapped.ErrCanceled)
		e.recv(p, s, victim, bufs[victim][:], &ops[victim])
		e.send(peer, "abc")
		want := byte('a')
		for _, i := range []int{0, 1, 2, victim} {
			if i == victim && want < 'c' {
				continue
			}
			e.received(p, i, &ops[i], bufs[i][:], string(rune(want)))
			want++
			if want > 'c' {
				break
			}
		}
		e.none(p)
	}
}

// cancelRaces cancels receives that their bytes arrive for at the same time: each completes once, and no byte
// is lost.
func cancelRaces(e *env) {
	p := e.port()
	s, peer := e.unix()
	const rounds = 300
	var o op
	b := make([]byte, 1)
	got := 0
	for range rounds {
		e.recv(p, s, "k", b, &o)
		sent := async(func() error { _, err := peer.Send([]byte("x")); return err })
		canceled := async(func() error { return overlapped.Cancel(p, &o) })
		n, err := e.result(e.next(p), "k", &o)
		switch {
		case n == 1 && err == nil:
			got++
		case n == 0 && errors.Is(err, overlapped.ErrCanceled):
		default:
			e.Fatalf("completed with %d, %v", n, err)
		}
		e.end(sent, "sending")
		if err := <-canceled; err != nil && !errors.Is(err, overlapped.ErrNotInFlight) {
			e.Fatalf("Cancel: %v", err)
		}
	}
	e.none(p)
	if got += len(e.drain(s)); got != rounds {
		e.Errorf("%d bytes of %d", got, rounds)
	}
}

func closeUnderOperations(e *env) {
	p := e.port()
	s, _ := e.unix()
	var recv, second, send op
	b := make([]byte, 8)
	e.recv(p, s, "r", b, &recv)
	e.recv(p, s, "r2", b, &second)
	e.fill(s)
	e.startSend(p, s, "s", []byte("x"), &send)
	e.none(p)
	w := e.wait(p, 4, -1)
	e.parked(p, 1)
	s.Close()
	notes := e.get(w).notes
	for len(notes) < 3 {
		notes = append(notes, e.next(p))
	}
	seen := map[any]bool{}
	for _, got := range notes {
		_, err := overlapped.Of(&got).Result()
		e.wantErr(err, net.ErrClosed, socknotify.ErrBadSocket)
		seen[got.Key] = true
	}
	if len(seen) != 3 {
		e.Errorf("completions of %v", seen)
	}
	e.none(p)
	e.wantErr(overlapped.Recv(p, s.Socket, "r", b, &recv), socknotify.ErrBadSocket, net.ErrClosed)
}

// closeSocketRaces closes sockets whose operations are being started, carried out and canceled.
func closeSocketRaces(e *env) {
	p := e.port()
	var completed atomic.Int32
	stop := e.workers(p, 3, 2, func(got note) { completed.Add(1) })
	started := int32(0)
	for range 100 {
		s, peer := e.unix()
		var ops [4]op
		var b [4][8]byte
		begin := async(func() error {
			for i := range ops {
				start := overlapped.Recv[any]
				if i%2 == 1 {
					start = overlapped.Send
				}
				if err := start(p, s.Socket, s, b[i][:], &ops[i]); err == nil {
					started++
				} else if !errors.Is(err, net.ErrClosed) {
					return err
				}
			}
			return nil
		})
		sent := async(func() error { peer.Send([]byte("x")); return nil })
		end := async(s.Close)
		e.end(begin, "starting")
		e.end(sent, "sending")
		e.end(end, "closing")
		e.until("everything has completed", func() bool { return completed.Load() == started })
		peer.Close()
	}
	stop()
}

func closePortUnderOperations(e *env) {
	p := e.port()
	s, peer := e.unix()
	other, otherPeer := e.unix()
	var waits, done op
	b := make([]byte, 8)
	e.recv(p, s, "k", b, &waits)
	e.deliver(otherPeer, other, "x")
	e.recv(p, other, "k", b[4:], &done)
	if err := p.Close(); err != nil {
		e.Fatalf("Close: %v", err)
	}
	e.wantErr(overlapped.Cancel(p, &waits), socknotify.ErrClosed)
	q := e.port()
	e.recv(q, s, "q", b, &waits)
	e.deliver(peer, s, "y")
	e.received(q, "q", &waits, b, "y")
	e.recv(q, other, "q2", b, &done)
	e.deliver(otherPeer, other, "z")
	e.received(q, "q2", &done, b, "z")
}

// closePortRaces closes a port under operations. Whatever buffers it has left are the caller's: the race
// detector looks.
func closePortRaces(e *env) {
	for range 30 {
		p := e.port()
		var conns []*echoConn
		var peers []*socket
		for range 4 {
			s, peer := e.unix()
			c := &echoConn{s: s, buf: make([]byte, 64)}
			e.recv(p, s, c, c.buf, &c.recv)
			conns, peers = append(conns, c), append(peers, peer)
		}
		stop := e.workers(p, 2, 2, func(got note) {
			c := got.Key.(*echoConn)
			if overlapped.Of(&got) == &c.recv {
				overlapped.Send[any](p, c.s.Socket, c, c.buf[:1], &c.send)
			} else {
				overlapped.Recv[any](p, c.s.Socket, c, c.buf, &c.recv)
			}
		})
		for _, peer := range peers {
			e.send(peer, "xyz")
		}
		stop()
		for _, c := range conns {
			c.buf[0]++
			c.s.Close()
		}
	}
}

func dropPortUnderOperations(e *env) {
	s, peer := e.unix()
	var o op
	b := make([]byte, 8)
	func() {
		p := e.factory(e.T)
		e.recv(p, s, "k", b, &o)
	}()
	q := e.port()
	e.until("the operation is the caller's", func() bool {
		runtime.GC()
		return overlapped.Recv(q, s.Socket, "q", b, &o) == nil
	})
	e.deliver(peer, s, "x")
	e.received(q, "q", &o, b, "x")
}

func operateRegistered(e *env) {
	p, q := e.port(), e.port()
	s, peer := e.unix()
	var o op
	b := make([]byte, 8)
	for _, r := range []reg{enable(s, "n", in, level|oneShot), raw(enable(s, "n", in, level|oneShot), s)} {
		e.do(p, r)
		e.wantErr(overlapped.Recv(p, s.Socket, "k", b, &o), socknotify.ErrInvalid)
		e.wantErr(overlapped.Recv(q, s.Socket, "k", b, &o), socknotify.ErrOtherPort)
		e.deliver(peer, s, "x")
		e.want(p, "n", in)
		e.drain(s)
		e.do(p, remove(s))
		e.want(p, "n", gone)
	}
	l := e.listener()
	e.accept(p, l, "l", 1)
	e.wantErr(overlapped.Recv(p, l.Socket, "k", b, &o), socknotify.ErrInvalid)
	e.recv(p, s, "k", b, &o)
	e.deliver(peer, s, "y")
	e.received(p, "k", &o, b, "y")
}

func registerOperating(e *env) {
	p, q := e.port(), e.port()
	s, peer := e.unix()
	var o, other op
	b := make([]byte, 8)
	e.recv(p, s, "k", b, &o)
	e.refused(p, enable(s, "n", in, level), socknotify.ErrInvalid)
	e.refused(p, enable(s, nil, in, level), socknotify.ErrInvalid)
	e.refused(q, enable(s, "n", in, level), socknotify.ErrOtherPort)
	e.wantErr(overlapped.Recv(q, s.Socket, "k", b, &other), socknotify.ErrOtherPort)
	e.wantErr(overlapped.Send(q, s.Socket, "k", b, &other), socknotify.ErrOtherPort)
	e.deliver(peer, s, "x")
	e.received(p, "k", &o, b, "x")
}

func registerAfterwards(e *env) {
	p, q := e.port(), e.port()
	s, peer := e.unix()
	var o op
	b := make([]byte, 8)
	for range 3 {
		for _, on := range []*port{p, q} {
			e.recv(on, s, "k", b, &o)
			e.deliver(peer, s, "x")
			e.received(on, "k", &o, b, "x")
		}
		for _, on := range []*port{q, p} {
			e.do(on, enable(s, "n", in|hangup, level|oneShot))
			e.deliver(peer, s, "y")
			e.want(on, "n", in)
			if data := e.drain(s); data != "y" {
				e.Fatalf("received %q", data)
			}
			e.do(on, remove(s))
			e.want(on, "n", gone)
			e.none(p)
		}
	}
}

func operationsAreNoRegistration(e *env) {
	p := e.port()
	s, peer := e.unix()
	var o op
	b := make([]byte, 8)
	e.recv(p, s, "k", b, &o)
	e.refused(p, disable(s), socknotify.ErrNotRegistered)
	e.refused(p, remove(s), socknotify.ErrNotRegistered)
	_, err := p.Deregister(remove(s))
	e.wantErr(err, socknotify.ErrNotRegistered)
	e.deliver(peer, s, "x")
	e.received(p, "k", &o, b, "x")
	e.refused(p, remove(s), socknotify.ErrNotRegistered)
}
