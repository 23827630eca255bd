package conformance

import (
	"errors"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// E3, E5, E6 and E7 for sockets of MPTCP, of which poll(2) and epoll report a dead connection otherwise than of
// one of TCP: without input, and without the end of the peer's direction.
var mptcpCases = map[string]func(*env){
	"E3/MPTCP":                    mptcpHangup,
	"E5/MPTCPReset":               mptcpReset,
	"E5/MPTCPResetWithUnreadData": mptcpResetUnread,
	"E6/MPTCPFresh":               mptcpFresh,
	"E6/VsockFresh":               vsockFresh,
	"E7/MPTCPRefused":             mptcpRefused,
	"E7/MPTCPRefusedWhileWaiting": mptcpRefusedWhileWaiting,
}

// mptcpListeners returns a listener that speaks MPTCP, and one that does not, with which a connection falls back to
// TCP.
func (e *env) mptcpListeners() [2]*socket {
	e.Helper()
	l := e.mptcp()
	if err := l.Bind(sock.Loopback); err != nil {
		e.Fatalf("bind: %v", err)
	}
	if err := l.Listen(16); err != nil {
		e.Fatalf("listen: %v", err)
	}
	return [2]*socket{l, e.listener()}
}

// mptcpPair makes a connection of an MPTCP socket to a listener.
func (e *env) mptcpPair(l *socket) (client, server *socket) {
	e.Helper()
	client = e.mptcp()
	e.connect(client, l.LocalAddr())
	settle(e, l, stateIn)
	server = e.keep(l.Accept())
	settle(e, client, stateOut)
	return client, server
}

func mptcpHangup(e *env) {
	p := e.port()
	for _, l := range e.mptcpListeners() {
		for _, trigger := range everyWay {
			for _, accepted := range []bool{false, true} {
				for _, end := range []func(s handle, peer *socket){e.shut, func(s handle, peer *socket) {
					peer.Close()
					settle(e, s, statePeerClosed)
				}} {
					s, peer := e.mptcpPair(l)
					if accepted {
						s, peer = peer, s
					}
					e.do(p, enable(s, "k", in|hangup, trigger))
					end(s, peer)
					e.want(p, "k", in|hangup)
					if _, err := receiveAll(s); !errors.Is(err, endOfStream) {
						e.Errorf("receive: %v", err)
					}
					e.do(p, remove(s))
					e.want(p, "k", gone)
				}
			}
		}
	}
}

func mptcpReset(e *env) {
	for _, l := range e.mptcpListeners() {
		for filter := events(0); filter <= socknotify.EventsAll; filter++ {
			for _, trigger := range everyWay {
				for _, parked := range []bool{false, true} {
					p := e.port()
					s, peer := e.mptcpPair(l)
					e.do(p, enable(s, "k", filter&^out, trigger))
					if parked {
						w := e.wait(p, 1, -1)
						e.parked(p, 1)
						e.reset(s, peer)
						r := e.get(w)
						if len(r.notes) != 1 {
							e.Fatalf("Wait = %v, %v", r.notes, r.err)
						}
						e.check(r.notes[0], "k", bad|filter&(in|hangup))
					} else {
						e.reset(s, peer)
						e.wantNow(p, "k", bad|filter&(in|hangup))
					}
					e.do(p, enable(s, "k", filter, level|oneShot)) // OUT does not come either
					e.wantNow(p, "k", bad|filter&(in|hangup))
					if _, err := receiveAll(s); !errors.Is(err, errReset) {
						e.Errorf("receive: %v", err)
					}
					e.do(p, remove(s))
					e.wantNow(p, "k", gone)
					s.Close()
				}
			}
		}
	}
}

func mptcpResetUnread(e *env) {
	p := e.port()
	for _, l := range e.mptcpListeners() {
		s, peer := e.mptcpPair(l)
		e.do(p, enable(s, "k", in|out|hangup, level|oneShot))
		e.deliver(peer, s, "x")
		e.reset(s, peer)
		e.wantNow(p, "k", in|hangup|bad)
		if data, err := receiveAll(s); data != "x" || !errors.Is(err, errReset) {
			e.Errorf("received %q, %v", data, err)
		}
	}
}

func mptcpFresh(e *env) {
	unconnected := e.mptcp()
	p := e.port()
	for _, l := range e.mptcpListeners() {
		for _, trigger := range everyWay {
			s := e.mptcp()
			e.do(p, enable(s, "k", in|out|hangup, trigger))
			e.none(p)
			e.connect(s, l.LocalAddr())
			e.want(p, "k", out)
			e.do(p, remove(s))
			e.want(p, "k", gone)
		}
	}
	e.do(p, enable(unconnected, "k", in|out|hangup, level))
	e.quiet(p)
}

// vsockFresh has a socket that the system takes for one that can send, though it has no connection.
func vsockFresh(e *env) {
	for _, trigger := range everyWay {
		s := e.vsock()
		p := e.port()
		e.do(p, enable(s, "k", in|hangup, trigger))
		e.quiet(p)
		e.do(p, enable(s, "k", in|out|hangup, trigger))
		e.wantNow(p, "k", out)
		e.do(p, remove(s))
		e.wantNow(p, "k", gone)
	}
}

func mptcpRefused(e *env) {
	for filter := events(0); filter <= socknotify.EventsAll; filter++ {
		for _, trigger := range everyWay {
			s := e.mptcp()
			p := e.port()
			if !e.refuseConnect(s) {
				e.Skip("this system refuses within the call")
			}
			e.do(p, enable(s, "k", filter, trigger))
			e.wantNow(p, "k", filter&^out|bad)
			e.wantErr(s.Err(), errRefused)
			e.do(p, enable(s, "k", filter, level|oneShot))
			if got := e.now(p); len(got) != 0 { // to the system it is as one that was never told to connect
				e.Errorf("after its error was read: %v", got)
			}
			e.do(p, remove(s))
			e.wantNow(p, "k", gone)
		}
	}
}

func mptcpRefusedWhileWaiting(e *env) {
	for filter := events(0); filter <= socknotify.EventsAll; filter++ {
		for _, trigger := range everyWay {
			s := e.mptcp()
			p := e.port()
			w := e.wait(p, 4, -1)
			e.parked(p, 1)
			e.do(p, enable(s, "k", filter, trigger))
			if !e.refuseConnect(s) {
				e.Skip("this system refuses within the call")
			}
			r := e.get(w)
			if len(r.notes) != 1 {
				e.Fatalf("Wait = %v, %v", r.notes, r.err)
			}
			e.check(r.notes[0], "k", filter&^out|bad)
			e.wantErr(s.Err(), errRefused)
		}
	}
}
