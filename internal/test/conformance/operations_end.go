package conformance

import (
	"bytes"
	"errors"
	"net"
	"runtime"
	"sync/atomic"

	"github.com/socknotify/socknotify/internal/test/qemu"
	"github.com/socknotify/socknotify/internal/test/wine"
	"github.com/socknotify/socknotify/overlapped"
	"github.com/socknotify/socknotify/sock"
)

// O4 to O11: how operations on sockets end.
var operationEndCases = map[string]func(*env){
	"O4/ResetOfMany":       resetOfMany,
	"O4/EndAfterReconnect": recvEndReconnected,
	"O5/AllOfIt":           sendAll,
	"O8/PartOfASend":       cancelsPart,
	"O8/Races":             cancelRaces,
	"O9/CloseRaces":        closeSocketRaces,
	"O10/ClosePortRaces":   closePortRaces,
	"O10/DroppedPort":      dropPortUnderOperations,
}

// tellsReset skips a case where the system forgets a reset.
func (e *env) tellsReset() {
	e.Helper()
	if wine.ForgetsReset.Here() {
		e.Skip(wine.ForgetsReset)
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
		if !qemu.Is(err, errReset) {
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

func (e *env) cancel(p *port, o *op) {
	e.Helper()
	if err := overlapped.Cancel(p, o); err != nil {
		e.Fatalf("Cancel: %v", err)
	}
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
