package conformance

import (
	"fmt"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/wine"
)

// A port with strict edges keeps the sentences that its edges could break.
func TestStrictEdgeKeepsTheContract(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, sentence := range []string{"T2", "T3", "E3", "E5", "E7", "X5"} {
			t.Run(backend+"-"+sentence, func(t *testing.T) { RunSentence(t, edgePort(backend, true), sentence) })
		}
	})
}

func edgePort(backend string, strict bool) Factory {
	return func(tb testing.TB) *socknotify.Port[any] {
		tb.Helper()
		opts := []socknotify.Option{backendtest.Counted(backend)}
		if strict {
			opts = append(opts, socknotify.WithStrictEdge())
		}
		p, err := socknotify.New[any](opts...)
		if err != nil {
			tb.Fatal(err)
		}
		return p
	}
}

// An edgeCase is a run of a program that uses edges. Where it may hang on Windows it does so with strict edges.
type edgeCase struct {
	*env
	p       *port
	strict  bool
	trigger socknotify.Trigger
}

func (c *edgeCase) oneShot() bool { return c.trigger&oneShot != 0 }

// hears wants a notification, on a strict port none.
func (c *edgeCase) hears(ev events) {
	c.Helper()
	if c.strict {
		c.none(c.p)
		return
	}
	c.want(c.p, "k", ev)
}

// onWithout goes on after a notification with the socket undrained.
func (c *edgeCase) onWithout(s *socket, filter events) {
	c.Helper()
	if c.oneShot() {
		c.do(c.p, enable(s, "k", filter, c.trigger))
	}
}

// on goes on after the socket was drained. A tied socket has told the port.
func (c *edgeCase) on(s *socket, filter events) {
	c.Helper()
	if c.oneShot() || !c.tied {
		c.do(c.p, drained(s, "k", filter, c.trigger))
	}
}

func TestStrictEdge(t *testing.T) {
	programs := []struct {
		name string
		run  func(c *edgeCase)
	}{
		{"InHeld", strictInHeld}, {"InHeldDrainedAtOnce", strictInDrainedAtOnce}, {"OutHeld", strictOutHeld}, {"HangupHeld", strictHangupHeld},
		{"InUndrained", strictInUndrained}, {"OutUndrained", strictOutUndrained},
		{"HangupUndrained", strictHangupUndrained}, {"EndUndrained", strictEndUndrained},
		{"EndAfterShortReceive", strictEndAfterShort},
		{"RoomBehindHangup", strictRoomBehindHangup},
		{"ArrivalBeforeEnable", strictArrival}, {"RoomBeforeEnable", strictRoom}, {"OtherBit", strictOtherBit},
		{"Connect", strictConnect}, {"Listener", strictListener}, {"Datagrams", strictDatagrams},
	}
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, program := range programs {
			for _, tied := range []bool{false, true} {
				for _, trigger := range []socknotify.Trigger{edge, edge | oneShot} {
					for _, strict := range []bool{false, true} {
						name := fmt.Sprintf("%s/%s/tied=%t/%v/strict=%t", backend, program.name, tied, trigger, strict)
						t.Run(name, func(t *testing.T) {
							e := &env{T: t, sentence: "T2", factory: edgePort(backend, strict), tied: tied}
							c := &edgeCase{e, e.port(), strict, trigger}
							if strict && kernelEdges(c.p) {
								t.Error("a strict port says that its edges need no telling")
							}
							program.run(c)
						})
					}
				}
			}
		}
	})
}

// endBehindData skips a run that must be told of an end of stream while there is data before it.
func (c *edgeCase) endBehindData() {
	c.Helper()
	if wine.HidesEnd.Here() {
		c.Skip(wine.HidesEnd)
	}
}

// What held at the enable is not heard of; draining, and an arrival after it, is.
func strictInHeld(c *edgeCase) {
	s, peer := c.unix()
	c.deliver(peer, s, "x")
	c.do(c.p, enable(s, "k", in, c.trigger))
	c.hears(in)
	c.drain(s)
	c.on(s, in)
	c.deliver(peer, s, "y")
	c.want(c.p, "k", in)
}

// The same before anybody has dequeued, so that no report says what held.
func strictInDrainedAtOnce(c *edgeCase) {
	s, peer := c.unix()
	c.deliver(peer, s, "x")
	c.do(c.p, enable(s, "k", in, c.trigger))
	c.drain(s)
	c.on(s, in)
	c.deliver(peer, s, "y")
	c.want(c.p, "k", in)
}

func strictOutHeld(c *edgeCase) {
	s, peer := c.unix()
	c.do(c.p, enable(s, "k", out, c.trigger))
	c.hears(out)
	c.fill(s)
	c.on(s, out)
	c.drain(peer)
	c.want(c.p, "k", out)
}

func strictHangupHeld(c *edgeCase) {
	for _, filter := range []events{hangup, in | hangup} {
		s, peer := c.unix()
		c.shut(s, peer)
		c.do(c.p, enable(s, "k", filter, c.trigger))
		c.hears(filter)
		c.do(c.p, remove(s))
		c.want(c.p, "k", gone)
	}
}

// A program that receives once for each edge, and less than there is.
func strictInUndrained(c *edgeCase) {
	s, peer := c.unix()
	c.do(c.p, enable(s, "k", in, c.trigger))
	for range 3 {
		c.deliver(peer, s, "xyz")
		c.want(c.p, "k", in)
		var b [1]byte
		if _, err := s.Recv(b[:]); err != nil {
			c.Fatalf("receive: %v", err)
		}
		c.onWithout(s, in)
		c.deliver(peer, s, "xyz")
		if kernelEdges(c.p) || c.oneShot() {
			c.hears(in)
		} else {
			c.none(c.p)
		}
		c.drain(s)
		c.on(s, in)
	}
}

func strictOutUndrained(c *edgeCase) {
	s, peer := c.unix()
	c.fill(s)
	c.do(c.p, enable(s, "k", out, c.trigger))
	for range 3 {
		c.drain(peer)
		c.want(c.p, "k", out)
		c.onWithout(s, out)
		c.send(s, "x")
		c.drain(peer) // for which epoll makes an edge
		if c.oneShot() {
			c.hears(out)
		} else if c.strict {
			c.none(c.p)
		}
		c.fill(s)
		c.on(s, out)
		c.now(c.p) // what the filling left behind
		c.onWithout(s, out)
		c.fill(s)
		c.on(s, out)
	}
}

// A hang-up is news even where data was not received.
func strictHangupUndrained(c *edgeCase) {
	c.endBehindData()
	s, peer := c.unix()
	c.do(c.p, enable(s, "k", in|hangup, c.trigger))
	c.deliver(peer, s, "x")
	c.want(c.p, "k", in)
	if c.oneShot() && c.strict {
		c.onWithout(s, in|hangup)
		c.none(c.p)
	}
	c.shut(s, peer)
	if !c.strict {
		c.onWithout(s, in|hangup)
	}
	c.want(c.p, "k", in|hangup)
}

// An end of stream behind data is no news to who waits for something to receive, and has not received.
func strictEndUndrained(c *edgeCase) {
	s, peer := c.unix()
	c.do(c.p, enable(s, "k", in, c.trigger))
	c.deliver(peer, s, "x")
	c.want(c.p, "k", in)
	c.onWithout(s, in)
	if c.oneShot() {
		c.hears(in)
		if !c.strict {
			c.onWithout(s, in)
		}
	} else if !c.strict {
		c.endBehindData()
	}
	c.shut(s, peer)
	c.hears(in)
	if data, err := receiveAll(s); data != "x" || err != endOfStream {
		c.Fatalf("received %q, %v", data, err)
	}
}

// It is told once a short receive has drained the socket.
func strictEndAfterShort(c *edgeCase) {
	if !c.tied {
		return // only those know what was short
	}
	if !c.oneShot() && !c.strict {
		c.endBehindData()
	}
	client, s := c.tcp()
	c.do(c.p, enable(s, "k", in, c.trigger))
	c.deliver(client, s, "x")
	c.want(c.p, "k", in)
	c.shut(s, client)
	if !c.oneShot() {
		c.hears(in) // and drops it
	}
	var b [64]byte
	if n, err := s.Recv(b[:]); n != 1 || err != nil {
		c.Fatalf("receive = %d, %v", n, err)
	}
	if c.strict {
		c.on(s, in)
		c.want(c.p, "k", in)
	}
}

// An arrival after the draining and before the enable that vouches for it is a change (X5).
func strictArrival(c *edgeCase) {
	s, peer := c.unix()
	c.do(c.p, enable(s, "k", in, c.trigger))
	for range 5 {
		c.deliver(peer, s, "x")
		c.want(c.p, "k", in)
		c.drain(s)
		c.deliver(peer, s, "y")
		c.on(s, in)
		c.want(c.p, "k", in)
		c.drain(s)
		c.on(s, in)
	}
}

func strictRoom(c *edgeCase) {
	s, peer := c.unix()
	c.fill(s)
	c.do(c.p, enable(s, "k", out, c.trigger))
	for range 3 {
		c.drain(peer)
		c.want(c.p, "k", out)
		c.fill(s)
		c.drain(peer)
		c.on(s, out)
		c.want(c.p, "k", out)
		c.fill(s)
		c.on(s, out)
	}
}

// The peer half-closes, receives what was sent, and closes. A stream whose end was reported has been started, so room on
// it is reported although the other direction has ended since.
func strictRoomBehindHangup(c *edgeCase) {
	filters := []events{out}
	if c.tied && !c.oneShot() {
		filters = append(filters, out|hangup, in|out|hangup)
	}
	for _, filter := range filters {
		s, peer := c.unix()
		c.do(c.p, enable(s, "k", filter, c.trigger))
		c.hears(out)
		c.shut(s, peer)
		c.now(c.p)
		c.fill(s)
		c.on(s, filter)
		c.now(c.p)
		c.drain(peer)
		c.must(peer.Close())
		if got := c.next(c.p); got.Events&out == 0 {
			c.Fatalf("%v: notification %v; want OUT", filter, got.Events)
		}
		c.must(s.Close())
		c.now(c.p)
	}
}

// What holds of one bit hides nothing of the other.
func strictOtherBit(c *edgeCase) {
	s, peer := c.unix()
	c.do(c.p, enable(s, "k", in|out, c.trigger))
	c.hears(out)
	if !c.strict {
		c.onWithout(s, in|out)
		c.now(c.p)
		c.onWithout(s, in|out)
	}
	c.deliver(peer, s, "x")
	if got := c.next(c.p); got.Events&in == 0 {
		c.Fatalf("notification %v; want IN", got.Events)
	}
}

// A stream that was never started holds nothing (E6).
func strictConnect(c *edgeCase) {
	l, s := c.listener(), c.fresh()
	c.do(c.p, enable(s, "k", out|hangup, c.trigger))
	c.connect(s, l.LocalAddr())
	c.want(c.p, "k", out)
}

func strictListener(c *edgeCase) {
	l := c.listener()
	c.do(c.p, enable(l, "k", in, c.trigger))
	for range 2 {
		s := c.fresh()
		c.connect(s, l.LocalAddr())
		c.want(c.p, "k", in)
		c.onWithout(l, in)
		if c.oneShot() {
			c.hears(in)
		}
		for {
			a, err := l.Accept()
			if err != nil {
				break
			}
			a.Close()
		}
		c.on(l, in)
	}
}

func strictDatagrams(c *edgeCase) {
	s, peer := c.udp()
	c.do(c.p, enable(s, "k", in, c.trigger))
	for range 3 {
		c.deliver(peer, s, "x")
		c.want(c.p, "k", in)
		c.send(peer, "y")
		c.onWithout(s, in)
		if kernelEdges(c.p) || c.oneShot() {
			c.hears(in)
		} else {
			c.none(c.p)
		}
		c.drain(s)
		c.on(s, in)
	}
}
