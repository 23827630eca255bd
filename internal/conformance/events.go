package conformance

import (
	"errors"
	"runtime"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/qemu"
	"github.com/socknotify/socknotify/sock"
)

// E1, E2 and E9: when sockets are ready.
var readyCases = map[string]func(*env){
	"E2/RoomForAWaiter": roomForWaiter,
	"E1/UrgentData":     inUrgent,
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

// roomForWaiter has a call wait for room, which its peer makes bit by bit.
func roomForWaiter(e *env) {
	p := e.port()
	s, peer := e.tcp()
	e.fill(s)
	e.do(p, enable(s, "k", out, level|oneShot))
	w := e.wait(p, 1, -1)
	e.still(w)
	e.until("OUT", func() bool { e.drain(peer); return len(w) > 0 })
	e.check(e.get(w).notes[0], "k", out)
}

// E3 and E4: hang-ups.
var hangupCases = map[string]func(*env){
	"E3/UnreadDataIsKept": unreadIsKept,
	"E4/ListenerShutDown": listenerShutDown,
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

// never checks that what comes in a while does not have these events.
func (e *env) never(p *port, ev events) {
	e.Helper()
	for range 5 {
		buf := make([]note, 8)
		n, _ := p.Process(nil, buf, pause()/5)
		for _, got := range buf[:n] {
			if got.Events&ev != 0 {
				e.Fatalf("notification %v; %v must not come", got.Events, ev)
			}
		}
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
var errorCases = map[string]func(*env){
	"E5/ResetOfUnixStream": resetUnix,
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
	case qemu.Is(err, errReset):
		want |= bad
	case !errors.Is(err, endOfStream) || runtime.GOOS == "linux":
		e.Errorf("receive: %v", err)
	}
	if len(got) != 1 {
		e.Fatalf("%d notifications %v; want one, of %v", len(got), got, want)
	}
	e.check(got[0], "k", want)
}

// refuse makes a UDP socket have the error of a refused datagram.
func (e *env) refuse(s *socket) {
	e.Helper()
	e.send(s, "to no one")
	settle(e, s, stateErr)
}
