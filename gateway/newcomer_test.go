package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// A holder holds the reads of a stream, once each, until it is released.
type holder struct {
	s     *site
	sub   *nats.Subscription
	reads chan *nats.Msg
}

const readSubject = "$JS.API.DIRECT.GET." + defaultStream

// holdReads makes reads wait that begin from now on.
func holdReads(t *testing.T, s *site) *holder {
	t.Helper()
	const own = "test.read"
	h := &holder{s: s, reads: make(chan *nats.Msg, 100)}
	var err error
	h.sub, err = s.node.Conn.Subscribe(own, func(m *nats.Msg) { h.reads <- m })
	must(t, err)
	must(t, s.node.Server.GlobalAccount().AddMapping(readSubject, own))
	return h
}

// release lets a read go on, and further ones pass.
func (h *holder) release(t *testing.T, read *nats.Msg) {
	t.Helper()
	h.s.node.Server.GlobalAccount().RemoveMapping(readSubject)
	must(t, h.sub.Unsubscribe())
	must(t, h.s.node.Conn.PublishRequest(readSubject, read.Reply, read.Data))
}

// A noter is a sink that notes sequences, and calls a function when it is flushed.
type noter struct {
	flushed func()

	mu  sync.Mutex
	got []uint64
}

func (n *noter) send(_ int, e *event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.got = append(n.got, e.at.seq)
}
func (n *noter) flush(context.Context) error {
	if n.flushed != nil {
		n.flushed()
	}
	return nil
}
func (n *noter) gap(int, string, span)      {}
func (n *noter) end(*Gateway, error)        {}
func (n *noter) unsubscribed(*Gateway, int) {}

// last returns the sequence of the last event.
func (n *noter) last() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.got[len(n.got)-1]
}

// has reports whether the sink has the events 1 to last, once each and in order.
func (n *noter) has(last uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if uint64(len(n.got)) != last {
		return false
	}
	for i, seq := range n.got {
		if seq != uint64(i)+1 {
			return false
		}
	}
	return true
}

// joinFromFirst makes a client that begins with the first event of a topic.
func joinFromFirst(s *site, to sink) (client *subscriber, joined chan error) {
	client, joined = &subscriber{to: to}, make(chan error, 1)
	wants := []want{{filter: "a", after: position{s.hub.epoch, 0}}}
	go func() { joined <- s.hub.join(s.t.Context(), client, wants) }()
	return client, joined
}

// While a client reads what it has missed, however long that takes, those who have joined get the
// events at once. It gets those events after what it has read, from memory, or from the stream if
// there are too many.
func TestNewcomerHoldsNoFeed(t *testing.T) {
	for _, more := range []uint64{30, maxKept + 1} {
		s := newSite(t, t.TempDir(), Config{})
		r, err := openSSE(s.url, "topic=a", "")
		must(t, err)
		defer r.close()
		until(t, "the client has joined", func() bool { return s.members() == 1 })
		for range 5 {
			s.publish("a", "missed")
		}
		for range 5 {
			_, err := r.next()
			must(t, err)
		}
		hold := holdReads(t, s)
		to := new(noter)
		client, joined := joinFromFirst(s, to)
		read := <-hold.reads
		for range more {
			s.publish("a", "more")
		}
		for range more {
			_, err := r.next()
			must(t, err)
		}
		hold.release(t, read)
		must(t, <-joined)
		until(t, "the newcomer has all", func() bool { return to.has(5 + more) })
		s.publish("a", "last")
		until(t, "the newcomer has the last event", func() bool { return to.has(6 + more) })
		if f := s.hub.all()[0]; f.newcomers != nil {
			t.Error("the feed still keeps events")
		}
		s.hub.leave(client)
	}
}

// A topic may be so busy that there is always more for a client that reads what it has missed. Its
// reads hold no other client's events either.
func TestNewcomerOfBusyTopic(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	r, err := openSSE(s.url, "topic=a", "")
	must(t, err)
	defer r.close()
	until(t, "the client has joined", func() bool { return s.members() == 1 })
	s.publish("a", "missed")
	f := s.hub.all()[0]
	floor := func() uint64 {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.floor
	}
	until(t, "the feed has the first event", func() bool { return floor() == 1 })
	const rounds, more = 8, fewKept + 1
	round := 0
	holding := make(chan *holder, 1)
	to := new(noter)
	to.flushed = func() {
		if round == rounds || to.last() < floor() {
			return
		}
		var seq uint64
		for range more { // the newcomer has all, and now it has not
			seq = sequence(t, s.publish("a", "more"))
		}
		until(t, "the feed has it", func() bool { return floor() >= seq })
		if round++; round == rounds {
			holding <- holdReads(t, s)
		}
	}
	client, joined := joinFromFirst(s, to)
	for range 1 + rounds*more {
		_, err := r.next()
		must(t, err)
	}
	hold := <-holding
	s.publish("a", "at once")
	_, err = r.next()
	must(t, err)
	select {
	case read := <-hold.reads:
		hold.release(t, read)
		must(t, <-joined)
	case err := <-joined:
		must(t, err)
		s.node.Server.GlobalAccount().RemoveMapping(readSubject)
	}
	until(t, "the newcomer has all", func() bool { return to.has(2 + rounds*more) })
	s.hub.leave(client)
}

// A client joins though there is one more event whenever it has taken one.
func TestNewcomerOfBusyTopicJoins(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	holder := new(noter) // keeps the feed
	first, joined := joinFromFirst(s, holder)
	must(t, <-joined)
	s.publish("a", "missed")
	until(t, "the feed has it", func() bool { return holder.has(1) })
	n := uint64(1)
	client, joined := joinFromFirst(s, &noter{flushed: func() {
		s.publish("a", "more")
		n++
		until(t, "the feed has it", func() bool { return holder.has(n) })
	}})
	must(t, <-joined)
	s.hub.leave(client)
	s.hub.leave(first)
}

// A read ends when its caller's context does, and gives its place back: those of clients that have
// gone are not kept from others.
func TestReadsEndWithTheirCaller(t *testing.T) {
	before := requestTimeout
	requestTimeout = time.Hour
	t.Cleanup(func() { requestTimeout = before })
	s := newSite(t, t.TempDir(), Config{})
	s.publish("a", "1")
	s.publish("a", "2")
	hold := holdReads(t, s)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	ended := make(chan error, maxReads)
	for range maxReads {
		go func() {
			_, err := s.hub.history.get(ctx, getRequest{Seq: 1, Next: storedPrefix + ">", Batch: 1})
			ended <- err
		}()
	}
	var reads []*nats.Msg
	for range maxReads {
		reads = append(reads, <-hold.reads)
	}
	cancel(gone)
	for range maxReads {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a read ends with %v", err)
		}
	}
	// A client of a poll that has gone, which is sent what it has missed.
	request, stop := context.WithCancel(t.Context())
	answered := make(chan bool, 1)
	go func() {
		answered <- s.get(request, "/poll?topic=a&after="+position{s.hub.epoch, 1}.String())
	}()
	reads = append(reads, <-hold.reads)
	stop()
	if <-answered {
		t.Error("the poll was answered")
	}
	until(t, "no place is taken", func() bool { return len(s.hub.history.slots) == 0 })
	hold.release(t, reads[0])
}

// get makes a request, and reports whether there is an answer.
func (s *site) get(ctx context.Context, path string) bool {
	r, err := http.NewRequestWithContext(ctx, "GET", s.url+path, nil)
	must(s.t, err)
	answer, err := transport.RoundTrip(r)
	if err == nil {
		answer.Body.Close()
	}
	return err == nil
}

// A feed that could not begin is not there for those who come later, while clients that have waited
// for it have not gone yet.
func TestFailedStartIsNotInherited(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	for _, filter := range []string{"a", "live.a"} {
		making, failed := s.startFeed(filter)
		s.hub.started(making, filter, failed, errors.New("a fault"))
		f, err := s.hub.acquire(t.Context(), filter)
		if err != nil {
			t.Errorf("%s: a newcomer gets %v", filter, err)
			continue
		}
		to := new(noter)
		client := &subscriber{to: to}
		must(t, s.hub.join(t.Context(), client, []want{{filter: filter, after: position{s.hub.epoch, 0}}}))
		_, err = s.Publish(t.Context(), filter, []byte("x"), "")
		must(t, err)
		until(t, "the event comes", func() bool {
			to.mu.Lock()
			defer to.mu.Unlock()
			return len(to.got) == 1
		})
		if all := s.hub.all(); !slices.Equal(all, []*feed{f}) {
			t.Errorf("%s: the feeds are %v", filter, fmt.Sprint(all))
		}
		s.hub.leave(client)
		s.hub.release(f)
	}
}

// A holdingDialer makes connections whose writes wait while it is held.
type holdingDialer struct {
	held    sync.Mutex
	waiting chan struct{} // gets a value from each write that has to wait
}

func (d *holdingDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return holdingConn{conn, d}, err
}

type holdingConn struct {
	net.Conn
	dialer *holdingDialer
}

func (c holdingConn) Write(b []byte) (int, error) {
	if d := c.dialer; !d.held.TryLock() {
		d.waiting <- struct{}{}
		d.held.Lock()
	}
	c.dialer.held.Unlock()
	return c.Conn.Write(b)
}

// While NATS takes no subscription, the events of topics that have one go on, and the clients that
// want others join when it does.
func TestSlowSubscribe(t *testing.T) {
	address := freeAddr(t)
	node := newNode(t, NodeConfig{Store: t.TempDir(), Listen: address})
	dialer := &holdingDialer{waiting: make(chan struct{}, 10)}
	conn, err := nats.Connect("nats://"+address, nats.SetCustomDialer(dialer))
	must(t, err)
	defer conn.Close()
	s := newSiteOn(t, node, Config{Conn: conn})
	r, err := openWS(s.url, "topic=a&topic=live.a")
	must(t, err)
	defer r.close()
	until(t, "the client has joined", func() bool { return s.members() == 2 })
	dialer.held.Lock()
	must(t, conn.Publish("test.held", nil))
	<-dialer.waiting
	ctx, cancel := context.WithCancel(t.Context())
	slow, gone := make(chan error, 1), make(chan error, 1)
	join := func(ctx context.Context, answer chan<- error) {
		f, err := s.hub.acquire(ctx, "slow")
		if err == nil {
			s.hub.release(f)
		}
		answer <- err
	}
	go join(t.Context(), slow)
	go join(ctx, gone)
	until(t, "both wait", func() bool {
		s.hub.mu.RLock()
		defer s.hub.mu.RUnlock()
		making := s.hub.starting[subjectOf("slow")]
		return making != nil && making.refs == 2
	})
	for i := range 3 {
		data := fmt.Sprint(i)
		_, err := node.Conn.Request(storedPrefix+"a", []byte(data), requestTimeout)
		must(t, err)
		expect(t, r, message{Topic: "a", Data: data})
		must(t, node.Conn.Publish(livePrefix+"live.a", []byte(data)))
		expect(t, r, message{Topic: "live.a", Data: data})
	}
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("a client that has gone gets %v", err)
	}
	dialer.held.Unlock()
	must(t, <-slow)
	until(t, "the topic has no feed", func() bool { return len(s.hub.all()) == 2 })
}
