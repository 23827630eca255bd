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

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/stream"
)

// A holder holds the reads of a stream, once each, until it is released.
type holder struct {
	s     *site
	sub   *nats.Subscription
	reads chan *nats.Msg
}

const readSubject = "$JS.API.DIRECT.GET." + stream.DefaultName

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

func (n *noter) Send(_ int, e *event.Event) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.got = append(n.got, e.At.Seq)
	return true
}
func (n *noter) Flush(context.Context) error {
	if n.flushed != nil {
		n.flushed()
	}
	return nil
}
func (n *noter) Gap(int, string, event.Span) {}

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
func joinFromFirst(s *site, to hub.Sink) (client *hub.Subscriber, joined chan error) {
	client, joined = &hub.Subscriber{To: to}, make(chan error, 1)
	wants := []hub.Want{{Filter: "a", After: event.Position{Epoch: s.hub.Epoch, Seq: 0}}}
	go func() { joined <- s.hub.Join(s.t.Context(), client, wants) }()
	return client, joined
}

// While a client reads what it has missed, however long that takes, those who have joined get the
// events at once. It gets those events after what it has read, from memory, or from the stream if
// there are too many.
func TestNewcomerHoldsNoFeed(t *testing.T) {
	for _, more := range []uint64{30, hub.MaxKept + 1} {
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
		if f := s.hub.All()[0]; f.Newcomers != nil {
			t.Error("the feed still keeps events")
		}
		s.hub.Leave(client)
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
	f := s.hub.All()[0]
	floor := func() uint64 {
		f.Mu.Lock()
		defer f.Mu.Unlock()
		return f.Floor
	}
	until(t, "the feed has the first event", func() bool { return floor() == 1 })
	const rounds, more = 8, hub.FewKept + 1
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
	s.hub.Leave(client)
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
	s.hub.Leave(client)
	s.hub.Leave(first)
}

// A read ends when its caller's context does, and gives its place back: those of clients that have
// gone are not kept from others.
func TestReadsEndWithTheirCaller(t *testing.T) {
	before := stream.RequestTimeout
	stream.RequestTimeout = time.Hour
	t.Cleanup(func() { stream.RequestTimeout = before })
	s := newSite(t, t.TempDir(), Config{})
	s.publish("a", "1")
	s.publish("a", "2")
	hold := holdReads(t, s)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	ended := make(chan error, stream.MaxReads)
	for range stream.MaxReads {
		go func() {
			_, err := s.hub.History.Get(ctx, stream.GetRequest{Seq: 1, Next: event.StoredPrefix + ">", Batch: 1})
			ended <- err
		}()
	}
	var reads []*nats.Msg
	for range stream.MaxReads {
		reads = append(reads, <-hold.reads)
	}
	cancel(gone)
	for range stream.MaxReads {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a read ends with %v", err)
		}
	}
	// A client of a poll that has gone, which is sent what it has missed.
	request, stop := context.WithCancel(t.Context())
	answered := make(chan bool, 1)
	go func() {
		answered <- s.get(request, "/poll?topic=a&after="+event.Position{Epoch: s.hub.Epoch, Seq: 1}.String())
	}()
	reads = append(reads, <-hold.reads)
	stop()
	if <-answered {
		t.Error("the poll was answered")
	}
	until(t, "no place is taken", func() bool { return len(s.hub.History.Slots) == 0 })
	hold.release(t, reads[0])
}

// get makes a request, and reports whether there is an answer.
func (s *site) get(ctx context.Context, path string) bool {
	r, err := http.NewRequestWithContext(ctx, "GET", s.url+path, nil)
	must(s.t, err)
	answer, err := roundTripper.RoundTrip(r)
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
		s.hub.Started(making, filter, failed, errors.New("a fault"))
		f, err := s.hub.Acquire(t.Context(), filter)
		if err != nil {
			t.Errorf("%s: a newcomer gets %v", filter, err)
			continue
		}
		to := new(noter)
		client := &hub.Subscriber{To: to}
		must(t, s.hub.Join(t.Context(), client, []hub.Want{{Filter: filter, After: event.Position{Epoch: s.hub.Epoch, Seq: 0}}}))
		_, err = s.Publish(t.Context(), filter, []byte("x"), "")
		must(t, err)
		until(t, "the event comes", func() bool {
			to.mu.Lock()
			defer to.mu.Unlock()
			return len(to.got) == 1
		})
		if all := s.hub.All(); !slices.Equal(all, []*hub.Feed{f}) {
			t.Errorf("%s: the feeds are %v", filter, fmt.Sprint(all))
		}
		s.hub.Leave(client)
		s.hub.Release(f)
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
	must(t, conn.Flush()) // a live topic does not wait for that
	dialer.held.Lock()
	release := sync.OnceFunc(dialer.held.Unlock)
	defer release()
	must(t, conn.Publish("test.held", nil))
	<-dialer.waiting
	ctx, cancel := context.WithCancel(t.Context())
	slow, gone := make(chan error, 1), make(chan error, 1)
	join := func(ctx context.Context, answer chan<- error) {
		f, err := s.hub.Acquire(ctx, "slow")
		if err == nil {
			s.hub.Release(f)
		}
		answer <- err
	}
	go join(t.Context(), slow)
	go join(ctx, gone)
	until(t, "both wait", func() bool {
		s.hub.Mu.RLock()
		defer s.hub.Mu.RUnlock()
		making := s.hub.Starting[hub.SubjectOf("slow")]
		return making != nil && making.Refs == 2
	})
	for i := range 3 {
		data := fmt.Sprint(i)
		_, err := node.Conn.Request(event.StoredPrefix+"a", []byte(data), stream.RequestTimeout)
		must(t, err)
		expect(t, r, message{Topic: "a", Data: data})
		must(t, node.Conn.Publish(event.LivePrefix+"live.a", []byte(data)))
		expect(t, r, message{Topic: "live.a", Data: data})
	}
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("a client that has gone gets %v", err)
	}
	release()
	must(t, <-slow)
	until(t, "the topic has no feed", func() bool { return len(s.hub.All()) == 2 })
}
