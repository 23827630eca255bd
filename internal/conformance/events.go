package conformance

import (
	"errors"
	"runtime"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// E1, E2 and E9: when sockets are ready.
var readyChecks = []check{
	both("E1", "Data", inData),
	both("E1", "EndOfStream", inEnd),
	both("E1", "Listener", inListener),
	both("E1", "UnixListener", inUnixListener),
	both("E1", "Datagram", inDatagram),
	both("E1", "EmptyDatagram", inEmptyDatagram),
	both("E1", "UnixDatagram", inUnixDatagram),
	both("E1", "Packets", inPackets),
	both("E1", "UrgentData", inUrgent),
	both("E2", "Send", outSend),
	both("E2", "Connect", outConnect),
	both("E2", "Room", outRoom),
	both("E9", "NothingOutsideTheFilter", nothingOutside),
	both("E9", "NotReady", notReady),
}

func inData(e *env) {
	p := e.port()
	for _, pair := range []func() (a, b *socket){e.tcp, e.unix} {
		s, peer := pair()
		e.do(p, enable(s, "k", in|hangup, level))
		e.none(p)
		e.deliver(peer, s, "x")
		e.wantNow(p, "k", in)
		e.drain(s)
		e.none(p)
	}
}

func inEnd(e *env) {
	p := e.port()
	for _, pair := range []func() (a, b *socket){e.tcp, e.unix} {
		for _, trigger := range []socknotify.Trigger{level, edge} {
			s, peer := pair()
			e.do(p, enable(s, "k", in, trigger))
			e.shut(s, peer)
			e.wantNow(p, "k", in)
			if _, err := receiveAll(s); !errors.Is(err, endOfStream) {
				e.Errorf("receive: %v", err)
			}
			e.do(p, remove(s))
			e.wantNow(p, "k", gone)
		}
	}
}

func inListener(e *env) {
	p := e.port()
	l := e.listener()
	e.do(p, enable(l, "l", in|out|hangup, level))
	e.none(p)
	e.connect(e.fresh(), l.LocalAddr())
	settle(e, l, stateIn)
	e.wantNow(p, "l", in)
	e.keep(l.Accept())
	e.none(p)
}

func inUnixListener(e *env) {
	p := e.port()
	l, c := e.unixStream(), e.unixStream()
	path := e.unixListen(l)
	e.do(p, enable(l, "l", in|hangup, level))
	e.none(p)
	e.unixConnect(c, path)
	e.want(p, "l", in)
	e.do(p, remove(l))
	e.want(p, "l", gone)
	e.closeFD(l)
	e.closeFD(c)
}

func inDatagram(e *env) {
	p := e.port()
	a, b := e.udp()
	e.do(p, enable(a, "k", in|hangup, level))
	e.none(p)
	e.deliver(b, a, "x")
	e.wantNow(p, "k", in)
	e.drain(a)
	e.none(p)
}

func inEmptyDatagram(e *env) {
	p := e.port()
	a, b := e.udp()
	e.do(p, enable(a, "k", in, level|oneShot))
	e.sendEmpty(b)
	e.want(p, "k", in)
	if n, err := a.Recv(make([]byte, 1)); n != 0 || err != nil {
		e.Errorf("receive = %d, %v", n, err)
	}
}

func inUnixDatagram(e *env) {
	p := e.port()
	a, b := e.datagrams()
	e.do(p, enable(a, "k", in|hangup, level))
	e.none(p)
	e.deliver(b, a, "x")
	e.wantNow(p, "k", in)
}

func inPackets(e *env) {
	a, b := e.packets()
	p := e.port()
	e.do(p, enable(a, "k", in|hangup, level|oneShot))
	e.none(p)
	e.write(b, "x")
	e.want(p, "k", in)
	e.closeFD(b)
	settle(e, a, statePeerClosed)
	e.do(p, enable(a, "k", in|hangup, level|oneShot))
	e.wantNow(p, "k", in|hangup)
	e.closeFD(a)
}

// inUrgent mixes urgent data with data that is not; the latter must be found.
func inUrgent(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level, edge} {
		s, peer := e.tcp()
		e.do(p, enable(s, "k", in, trigger))
		e.send(peer, "a")
		e.sendUrgent(peer)
		e.send(peer, "b")
		data := ""
		for data != "ab" {
			e.want(p, "k", in)
			data += e.drain(s)
			if len(data) > 2 {
				e.Fatalf("received %q", data)
			}
			e.again(p, s, "k", in, trigger)
		}
		e.do(p, remove(s))
		for e.next(p).Events != gone {
			continue
		}
	}
}

func outSend(e *env) {
	p := e.port()
	udp, _ := e.udp()
	datagram, _ := e.datagrams()
	tcp, _ := e.tcp()
	stream, _ := e.unix()
	for _, s := range []*socket{udp, datagram, tcp, stream} {
		e.do(p, enable(s, s, in|out|hangup, level|oneShot))
		e.wantNow(p, s, out)
	}
}

func outConnect(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot} {
		for _, before := range []bool{true, false} {
			l := e.listener()
			s := e.fresh()
			if before {
				e.do(p, enable(s, "k", out|hangup, trigger))
			}
			e.connect(s, l.LocalAddr())
			if !before {
				e.do(p, enable(s, "k", out|hangup, trigger))
			}
			e.want(p, "k", out)
			if err := s.Err(); err != nil {
				e.Errorf("connect: %v", err)
			}
			e.do(p, remove(s))
			e.want(p, "k", gone)
		}
	}
}

func outRoom(e *env) {
	p := e.port()
	for _, pair := range []func() (a, b *socket){e.tcp, e.unix} {
		s, peer := pair()
		e.fill(s)
		e.do(p, enable(s, "k", out, level|oneShot))
		w := e.wait(p, 1, -1)
		e.still(w)
		ended := make(chan result, 1)
		go func() { ended <- <-w }()
		for done := false; !done; {
			e.drain(peer)
			select {
			case r := <-ended:
				e.check(r.notes[0], "k", out)
				done = true
			default:
			}
		}
		e.do(p, remove(s))
		e.want(p, "k", gone)
	}
}

// nothingOutside gives sockets every condition and asks for some.
func nothingOutside(e *env) {
	p := e.port()
	for filter := events(0); filter <= socknotify.EventsAll; filter++ {
		for _, trigger := range []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot} {
			s, peer := e.tcp()
			e.deliver(peer, s, "x")
			e.do(p, enable(s, "k", filter, trigger))
			e.shut(s, peer)
			var got events
			for _, n := range e.now(p) {
				got |= n.Events
			}
			if got != filter {
				e.Errorf("filter %v, %v: reported %v", filter, trigger, got)
			}
			e.do(p, remove(s))
			e.wantNow(p, "k", gone)
		}
	}
}

func notReady(e *env) {
	p := e.port()
	tcp, _ := e.tcp()
	stream, _ := e.unix()
	udp, _ := e.udp()
	l := e.listener()
	for _, s := range []*socket{tcp, stream, udp, l} {
		e.do(p, enable(s, s, in|hangup, level))
	}
	e.fill(tcp)
	e.do(p, enable(tcp, tcp, in|out|hangup, level))
	e.quiet(p)
}

// E3 and E4: hang-ups.
var hangupChecks = []check{
	both("E3", "HalfClose", halfClose),
	both("E3", "HalfCloseWithUnreadData", halfCloseUnread),
	both("E3", "FullClose", fullClose),
	both("E3", "BothDirectionsShut", bothShut),
	both("E3", "LocalShutdown", localShutdown),
	both("E3", "HangupAlone", hangupAlone),
	both("E3", "InAlone", inAlone),
	both("E3", "UnreadDataIsKept", unreadIsKept),
	both("E4", "Datagrams", datagramsNeverHangUp),
	both("E4", "UDP", udpNeverHangsUp),
	both("E4", "Listener", listenerNeverHangsUp),
	both("E4", "ListenerShutDown", listenerShutDown),
}

func halfClose(e *env) {
	p := e.port()
	for _, pair := range []func() (a, b *socket){e.tcp, e.unix} {
		for _, trigger := range []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot} {
			s, peer := pair()
			e.do(p, enable(s, "k", in|hangup, trigger))
			e.shut(s, peer)
			e.wantNow(p, "k", in|hangup)
			e.send(s, "the other direction")
			e.do(p, remove(s))
			e.wantNow(p, "k", gone)
		}
	}
}

func halfCloseUnread(e *env) {
	p := e.port()
	for _, pair := range []func() (a, b *socket){e.tcp, e.unix} {
		s, peer := pair()
		e.do(p, enable(s, "k", in|out|hangup, level|oneShot))
		e.send(peer, "last words")
		e.shut(s, peer)
		e.wantNow(p, "k", in|out|hangup)
		data, err := receiveAll(s)
		if data != "last words" || !errors.Is(err, endOfStream) {
			e.Errorf("received %q, %v", data, err)
		}
		e.do(p, remove(s))
		e.wantNow(p, "k", gone)
	}
}

func fullClose(e *env) {
	p := e.port()
	for _, pair := range []func() (a, b *socket){e.tcp, e.unix} {
		for _, trigger := range []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot} {
			s, peer := pair()
			e.do(p, enable(s, "k", in|hangup, trigger))
			peer.Close()
			settle(e, s, statePeerClosed)
			e.wantNow(p, "k", in|hangup)
			e.do(p, remove(s))
			e.wantNow(p, "k", gone)
		}
	}
}

func bothShut(e *env) {
	p := e.port()
	s, peer := e.tcp()
	e.do(p, enable(s, "k", in|hangup, level))
	if err := s.Shutdown(sock.ShutWrite); err != nil {
		e.Fatalf("shutdown: %v", err)
	}
	e.none(p)
	e.shut(s, peer)
	e.wantNow(p, "k", in|hangup)
	e.wantNow(p, "k", in|hangup)
}

// localShutdown has the program itself end the receiving direction.
func localShutdown(e *env) {
	if e.ofWindows() {
		e.Skip("Windows does not report it")
	}
	p := e.port()
	for _, pair := range []func() (a, b *socket){e.tcp, e.unix} {
		for _, trigger := range everyWay {
			s, _ := pair()
			e.do(p, enable(s, "k", in|hangup, trigger))
			e.none(p)
			if err := s.Shutdown(sock.ShutRead); err != nil {
				e.Fatalf("shutdown: %v", err)
			}
			e.want(p, "k", in|hangup)
			e.do(p, remove(s))
			e.want(p, "k", gone)
		}
	}
}

func hangupAlone(e *env) {
	p := e.port()
	for _, pair := range []func() (a, b *socket){e.tcp, e.unix} {
		s, peer := pair()
		e.do(p, enable(s, "k", hangup, level|oneShot))
		e.deliver(peer, s, "x")
		e.none(p)
		e.shut(s, peer)
		e.wantNow(p, "k", hangup)
		if got := e.drainOrEnd(s); got != "x" {
			e.Errorf("received %q", got)
		}
	}
}

func inAlone(e *env) {
	p := e.port()
	for _, pair := range []func() (a, b *socket){e.tcp, e.unix} {
		s, peer := pair()
		e.do(p, enable(s, "k", in, level|oneShot))
		peer.Close()
		settle(e, s, statePeerClosed)
		e.wantNow(p, "k", in)
	}
}

// unreadIsKept sends much, closes, and reads on each notification only a little.
func unreadIsKept(e *env) {
	const total = 40 << 10
	p := e.port()
	for _, pair := range []func() (a, b *socket){e.tcp, e.unix} {
		s, peer := pair()
		e.do(p, enable(s, "k", in|hangup, level|oneShot))
		sent := async(func() error { // a Unix stream may have room for 8 KiB
			defer peer.Close()
			for left := total; left > 0; {
				n, err := peer.Send(make([]byte, left))
				if err != nil && !errors.Is(err, sock.ErrWouldBlock) {
					return err
				}
				left -= n
			}
			return nil
		})
		b := make([]byte, 4000)
		for got := 0; ; {
			e.want2(p, "k", in, in|hangup)
			n, err := s.Recv(b)
			if errors.Is(err, endOfStream) {
				if got != total {
					e.Errorf("received %d of %d bytes", got, total)
				}
				break
			}
			if err != nil {
				e.Fatalf("receive: %v", err)
			}
			got += n
			e.do(p, enable(s, "k", in|hangup, level|oneShot))
		}
		e.end(sent, "sending")
	}
}

// want2 is want for either of two masks.
func (e *env) want2(p *port, k any, one, other events) {
	e.Helper()
	n := e.next(p)
	if n.Events == other {
		one = other
	}
	e.check(n, k, one)
}

func datagramsNeverHangUp(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level, edge} {
		s, peer := e.datagrams()
		e.do(p, enable(s, "k", in|hangup, trigger))
		peer.Close()
		e.never(p, hangup)
		if err := s.Shutdown(sock.ShutBoth); err != nil {
			e.Fatalf("shutdown: %v", err)
		}
		e.never(p, hangup)
	}
}

// never checks that what comes in a while does not have these events.
func (e *env) never(p *port, ev events) {
	e.Helper()
	for range 5 {
		buf := make([]note, 8)
		n, _ := p.Process(nil, buf, pause/5)
		for _, got := range buf[:n] {
			if got.Events&ev != 0 {
				e.Fatalf("notification %v; %v must not come", got.Events, ev)
			}
		}
	}
}

func udpNeverHangsUp(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level, edge} {
		s, peer := e.udp()
		e.do(p, enable(s, "k", in|hangup, trigger))
		peer.Close()
		e.never(p, hangup)
		e.send(s, "to no one")
		e.never(p, hangup)
		if err := s.Shutdown(sock.ShutBoth); err != nil {
			e.Fatalf("shutdown: %v", err)
		}
		e.never(p, hangup)
	}
}

func listenerNeverHangsUp(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level, edge} {
		l := e.listener()
		e.do(p, enable(l, "l", in|hangup, trigger))
		c := e.fresh()
		e.connect(c, l.LocalAddr())
		e.want(p, "l", in)
		c.Close()
		e.never(p, hangup)
		e.shutListener(l)
		e.never(p, hangup)
	}
}

// listenerShutDown shuts a listener down, of which both an accept and a send would fail, and not block.
func listenerShutDown(e *env) {
	if e.ofWindows() {
		e.Skip("a listener cannot be shut down")
	}
	for filter := events(0); filter <= socknotify.EventsAll; filter++ {
		for _, trigger := range everyWay {
			for _, before := range []bool{true, false} {
				p := e.port()
				l := e.listener()
				if before {
					e.do(p, enable(l, "l", filter, trigger))
				}
				e.shutListener(l)
				if !before {
					e.do(p, enable(l, "l", filter, trigger))
				}
				want := filter & (in | out)
				switch {
				case !before:
					want = 0 // it does not listen any more (E6)
				case p.Backend() == "kqueue":
					want &= out
				}
				rounds := 2
				if trigger&(edge|oneShot) != 0 {
					rounds = 1
				}
				for range rounds {
					if want != 0 {
						e.wantNow(p, "l", want)
					}
				}
				if want == 0 && before || rounds == 1 && filter == in {
					e.quietSoon(p, 8)
				}
				if s, err := l.Accept(); err == nil {
					e.Errorf("accepted %v", s)
				}
				e.do(p, remove(l))
				e.wantNow(p, "l", gone)
			}
		}
	}
}

// E5: errors.
var errorChecks = []check{
	both("E5", "Reset", reset),
	both("E5", "ResetWithUnreadData", resetUnread),
	both("E5", "ResetOfUnixStream", resetUnix),
	both("E5", "NeverOutOnADeadStream", neverOut),
	both("E5", "RefusedDatagram", refusedDatagram),
	both("E5", "ErrorHidesNothing", errorHidesNothing),
	both("E5", "ErrorIsNotRead", errorIsNotRead),
}

func reset(e *env) {
	p := e.port()
	for filter := events(0); filter <= socknotify.EventsAll; filter++ {
		for _, trigger := range []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot} {
			s, peer := e.tcp()
			e.do(p, enable(s, "k", filter, trigger))
			e.now(p) // OUT
			if trigger&(oneShot) != 0 {
				e.do(p, enable(s, "k", filter&^out, trigger))
			}
			e.reset(s, peer)
			e.wantNow(p, "k", bad|filter&(in|hangup))
			if _, err := receiveAll(s); !errors.Is(err, errReset) {
				e.Errorf("receive: %v", err)
			}
			e.do(p, remove(s))
			e.wantNow(p, "k", gone)
		}
	}
}

func resetUnread(e *env) {
	p := e.port()
	s, peer := e.tcp()
	e.do(p, enable(s, "k", in|out|hangup, level|oneShot))
	e.deliver(peer, s, "x")
	e.reset(s, peer)
	e.wantNow(p, "k", in|hangup|bad)
}

// resetUnix closes a Unix stream that has not read everything. On Linux that resets it; to other systems it is an end like
// any other. The notification says what a receive finds.
func resetUnix(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.send(s, "never read")
	e.do(p, enable(s, "k", in|hangup, level|oneShot))
	peer.Close()
	settle(e, s, statePeerClosed)
	got := e.come(p, 1)
	_, err := receiveAll(s)
	want := in | hangup
	switch {
	case errors.Is(err, errReset):
		want |= bad
	case !errors.Is(err, endOfStream) || runtime.GOOS == "linux":
		e.Errorf("receive: %v", err)
	}
	if len(got) != 1 {
		e.Fatalf("%d notifications %v; want one, of %v", len(got), got, want)
	}
	e.check(got[0], "k", want)
}

func neverOut(e *env) {
	p := e.port()
	for _, filter := range []events{out, in | out | hangup} {
		s, peer := e.tcp()
		e.reset(s, peer)
		e.do(p, enable(s, "k", filter, level))
		for range 3 {
			e.wantNow(p, "k", filter&^out|bad)
		}
		e.do(p, remove(s))
		e.wantNow(p, "k", gone)
	}
}

// refuse makes a UDP socket have the error of a refused datagram.
func (e *env) refuse(s *socket) {
	e.Helper()
	e.send(s, "to no one")
	settle(e, s, stateErr)
}

func refusedDatagram(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot} {
		s := e.fresh2(sock.UDP4)
		e.connect(s, e.nowhere(sock.UDP4))
		e.do(p, enable(s, "k", socknotify.EventNone, trigger))
		e.refuse(s)
		e.wantNow(p, "k", bad)
		e.wantErr(s.Err(), errRefused)
		if err := s.Err(); err != nil {
			e.Errorf("the error was not cleared by reading it: %v", err)
		}
		e.none(p)
		e.do(p, remove(s))
		e.wantNow(p, "k", gone)
	}
}

func (e *env) fresh2(n sock.Network) *socket {
	e.Helper()
	return e.keep(sock.New(n))
}

func errorHidesNothing(e *env) {
	p := e.port()
	s, peer := e.udp()
	e.deliver(peer, s, "x")
	peer.Close()
	e.refuse(s)
	e.do(p, enable(s, "k", in|out|hangup, level|oneShot))
	e.wantNow(p, "k", in|out|bad)
	s.Err()
	e.do(p, enable(s, "k", in|out|hangup, level|oneShot))
	e.wantNow(p, "k", in|out)
	if got := e.drain(s); got != "x" {
		e.Errorf("received %q", got)
	}
}

func errorIsNotRead(e *env) {
	p := e.port()
	s, peer := e.tcp()
	e.do(p, enable(s, "k", in|hangup, level))
	e.reset(s, peer)
	for range 3 {
		e.wantNow(p, "k", in|hangup|bad)
	}
	e.do(p, disable(s), enable(s, "k", in, level|oneShot))
	e.wantNow(p, "k", in|bad)
	e.do(p, remove(s))
	e.wantNow(p, "k", gone)
	e.wantErr(s.Err(), errReset)
}
