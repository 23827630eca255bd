package conformance

import (
	"errors"
	"runtime"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/qemu"
	"github.com/socknotify/socknotify/sock"
)

// E1, E2 and E9: when sockets are ready.
var readyCases = map[string]func(*env){
	"E1/UrgentData": inUrgent,
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

// E3 and E4: hang-ups.
var hangupCases = map[string]func(*env){
	"E3/UnreadDataIsKept": unreadIsKept,
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
