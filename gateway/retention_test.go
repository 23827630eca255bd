package gateway

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/stream"
	"github.com/socknotify/socknotify/internal/test/await"
)

// A ledger checks that a client gets every acknowledged event once and in order, or is told that it
// is missing.
type ledger struct {
	t     testing.TB
	acked []uint64 // sequences of the events that the client wants
	got   []uint64
	gaps  []event.Span
}

func sequence(t testing.TB, id string) uint64 {
	t.Helper()
	_, number, _ := strings.Cut(id, "-")
	seq, err := strconv.ParseUint(number, 10, 64)
	must(t, err)
	return seq
}

func (l *ledger) publish(s *site, topic, data string) {
	l.t.Helper()
	l.acked = append(l.acked, sequence(l.t, s.publish(topic, data)))
}

// note notes what a client of one topic gets.
func (l *ledger) note(m message) {
	l.t.Helper()
	if m.Gap == "" {
		l.got = append(l.got, sequence(l.t, m.ID))
	}
	for _, missed := range m.Missed {
		l.gaps = append(l.gaps, event.Span{After: sequence(l.t, missed.After), Through: sequence(l.t, missed.Last)})
	}
}

// read reads until the last event that was published, or a gap that has it.
func (l *ledger) read(r reader) {
	l.t.Helper()
	last := l.acked[len(l.acked)-1]
	has := func(s event.Span) bool { return s.Through >= last }
	for !slices.Contains(l.got, last) && !slices.ContainsFunc(l.gaps, has) {
		m, err := r.next()
		must(l.t, err)
		l.note(m)
	}
}

// check checks that each event has come once, in order, or is in a gap, and that something was
// lost.
func (l *ledger) check() {
	l.t.Helper()
	in := func(seq uint64) (n int) {
		for _, s := range l.gaps {
			if seq > s.After && seq <= s.Through {
				n++
			}
		}
		return n
	}
	if !slices.IsSorted(l.got) || len(slices.Compact(slices.Clone(l.got))) != len(l.got) {
		l.t.Errorf("out of order, or twice: %v", l.got)
	}
	lost, untold := 0, 0
	for _, seq := range l.acked {
		switch n, got := in(seq), slices.Contains(l.got, seq); {
		case got && n > 0 || n > 1:
			l.t.Errorf("event %d: it has come: %v; it is in %d gaps of %v", seq, got, n, l.gaps)
		case !got && n == 0:
			untold++
		case !got:
			lost++
		}
	}
	if untold > 0 || lost == 0 {
		l.t.Errorf("of %d events %d have not come and are in no gap, %d are in one of %v",
			len(l.acked), untold, lost, l.gaps)
	}
}

// The retention overtakes a client that reads what it has missed.
func TestRetentionOvertakesReplay(t *testing.T) {
	large := strings.Repeat("x", 16<<10)
	for _, filter := range []string{"a", "*"} {
		config := Config{WriteTimeout: time.Minute, Stream: StreamConfig{MaxBytes: 3 << 20}}
		s := newSite(t, t.TempDir(), config)
		l := ledger{t: t}
		for range 150 {
			l.publish(s, "a", large)
		}
		begin := event.Position{Epoch: s.hub.Epoch, Seq: 0}.String()
		r, err := openSSE(s.url, "topic="+url.QueryEscape(filter), begin)
		must(t, err)
		until(t, "the first events are on the way", func() bool { return s.Stats().QueuedBytes > 0 })
		for range 250 {
			l.publish(s, "a", large)
		}
		l.read(r)
		l.check()
		r.close()
	}
}

// The retention overtakes a node that gets nothing for a while.
func TestRetentionOvertakesNode(t *testing.T) {
	noise := strings.Repeat("x", 1000)
	for _, c := range []struct {
		name    string
		keep    int  // events that come after the noise
		publish bool // when the node gets events again, there is one more
	}{
		{"an event whose predecessor is kept", 3, true},
		{"an event without predecessor", 0, true},
		{"no event, and some are kept", 3, false},
		{"no event", 0, false},
	} {
		for _, filter := range []string{"a.x", "a.*"} {
			t.Run(filter+" "+c.name, func(t *testing.T) {
				s := newSite(t, t.TempDir(), Config{Stream: StreamConfig{MaxBytes: 64 << 10}})
				r, err := openSSE(s.url, "topic="+filter, "")
				must(t, err)
				defer r.close()
				until(t, "the client has joined", func() bool { return s.members() == 1 })
				l := ledger{t: t}
				l.publish(s, "a.x", "first")
				l.read(r)
				f := s.hub.All()[0]
				must(t, f.Sub.Unsubscribe())
				must(t, s.node.Conn.Flush())
				for range await.Attempts(t, "events are lost between two audits, which read them") {
					audits := s.hub.Count.Audits.Load()
					for range 20 {
						l.publish(s, "a.x", "lost")
					}
					for range 100 {
						s.publish("b", noise)
					}
					for i := range c.keep {
						l.publish(s, "a.x", fmt.Sprint("kept ", i))
					}
					if s.hub.Count.Audits.Load() == audits {
						break
					}
				}
				resubscribe(t, s, f)
				if c.publish {
					l.publish(s, "a.x", "last")
				} else {
					s.Changed()
				}
				l.read(r)
				l.check()
			})
		}
	}
}

// resubscribe makes a feed get events again.
func resubscribe(t *testing.T, s *site, f *hub.Feed) {
	t.Helper()
	s.hub.Mu.Lock() // no message is dispatched before the feed has the subscription that it came by
	sub, err := s.node.Conn.ChanSubscribe(f.Subject, s.hub.Inbox(f.Subject))
	f.Sub = sub
	s.hub.Mu.Unlock()
	must(t, err)
	must(t, s.node.Conn.Flush())
}

// The retention passes a client between the question where it begins and its joining.
func TestRetentionOvertakesJoin(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Stream: StreamConfig{MaxBytes: 64 << 10}})
	l := ledger{t: t}
	for range 20 {
		l.publish(s, "a", "lost")
	}
	wants := []hub.Want{{Filter: "a", After: event.Position{Epoch: s.hub.Epoch, Seq: 0}}}
	missed, err := s.hub.Locate(t.Context(), wants)
	must(t, err)
	if missed != nil {
		t.Fatalf("%+v", missed)
	}
	for range 100 {
		s.publish("b", strings.Repeat("x", 1000))
	}
	c := newTaker()
	must(t, s.hub.Join(t.Context(), &c.Subscriber, wants))
	l.note(message{Gap: c.reason, Missed: c.missed})
	l.check()
	s.hub.Leave(&c.Subscriber)
}

// A topic that is quiet for longer than the retention has lost nothing, if its node has followed
// the stream. Its next event comes without a gap, and so does that of a topic that has had none.
func TestQuietTopicsHaveNoGap(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Stream: StreamConfig{MaxBytes: 64 << 10}})
	var readers []reader
	for _, topic := range []string{"a", "none", "*.x"} {
		r, err := openWS(s.url, "topic="+topic)
		must(t, err)
		defer r.close()
		readers = append(readers, r)
	}
	until(t, "all have joined", func() bool { return s.members() == 3 })
	s.publish("a", "first")
	expect(t, readers[0], message{Data: "first"})
	var last uint64
	for range 8 { // an audit sees each part before the retention takes it
		for range 20 {
			last = sequence(t, s.publish("b", strings.Repeat("x", 1000)))
		}
		until(t, "an audit has all", func() bool {
			s.Changed()
			behind := func(f *hub.Feed) bool { return f.Checked.Load() < last }
			return !slices.ContainsFunc(s.hub.All(), behind)
		})
	}
	for i, topic := range []string{"a", "none", "w.x"} {
		s.publish(topic, "then")
		expect(t, readers[i], message{Data: "then", Topic: topic})
	}
}

// A replica that was away for longer than the retention has a hole between its old events and those
// that it has got from the leader. Here it is made by deletion, which the gateway's own streams do
// not allow.
func TestHole(t *testing.T) {
	node := newNode(t, NodeConfig{Store: t.TempDir()})
	js, err := jetstream.New(node.Conn)
	must(t, err)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: stream.DefaultName, Subjects: []string{event.StoredPrefix + ">"}, AllowDirect: true,
		RePublish: &jetstream.RePublish{
			Source: event.StoredPrefix + ">", Destination: event.RepublishedPrefix + ">"},
		Metadata: map[string]string{stream.EpochKey: "e"},
	})
	must(t, err)
	s := newSiteOn(t, node, Config{})
	l := ledger{t: t}
	for i := range 20 {
		l.publish(s, "a", fmt.Sprint(i))
	}
	for seq := range uint64(10) {
		must(t, stream.DeleteMsg(t.Context(), 6+seq))
	}
	holder, err := openSSE(s.url, "topic=a", "e-20") // the feed begins
	must(t, err)
	defer holder.close()
	until(t, "the client has joined", func() bool { return s.members() == 1 })
	// The client has come before the events were deleted.
	c := newTaker()
	must(t, s.hub.Join(t.Context(), &c.Subscriber, []hub.Want{{Filter: "a", After: event.Position{Epoch: "e", Seq: 3}}}))
	l.acked = l.acked[3:]
	for _, id := range c.ids {
		l.note(message{ID: id})
	}
	l.note(message{Gap: c.reason, Missed: c.missed})
	l.check()
	s.hub.Leave(&c.Subscriber)
}

// A replica that drops events for their age before the leader does answers a read. Here it is a
// mirror whose retention is shorter, by less than the difference between clocks that is allowed.
func TestReplicaDropsFirst(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the retention")
	}
	const age, lost = 8 * time.Second, 20
	s := newSite(t, t.TempDir(), Config{Stream: StreamConfig{MaxAge: age}})
	js, err := jetstream.New(s.node.Conn)
	must(t, err)
	mirror, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "MIRROR", MirrorDirect: true, Mirror: &jetstream.StreamSource{Name: stream.DefaultName},
		MaxAge: age - stream.MaxSkew*3/4})
	must(t, err)
	l := ledger{t: t}
	for i := range lost {
		l.publish(s, "a", fmt.Sprint(i))
	}
	first := func(stream jetstream.Stream) uint64 {
		info, err := stream.Info(t.Context())
		must(t, err)
		return info.State.FirstSeq
	}
	until(t, "the mirror has the events", func() bool { return first(mirror) == 1 })
	until(t, "the mirror has dropped them", func() bool { return first(mirror) > lost })
	l.publish(s, "a", "last")
	origin, err := js.Stream(t.Context(), stream.DefaultName)
	must(t, err)
	for reads := 0; ; reads++ {
		dropped := first(origin) > lost
		l.got, l.gaps = nil, nil
		_, err := s.hub.History.Replay(t.Context(), s.hub.Epoch, "a", 0, lost+1, func(e *event.Event) error {
			l.got = append(l.got, e.At.Seq)
			return nil
		}, func(missed event.Span) { l.gaps = append(l.gaps, missed) })
		must(t, err)
		told := len(l.got)
		for _, g := range l.gaps {
			told += int(g.Through - g.After)
		}
		if told != lost+1 {
			t.Fatalf("read %d: %d have come, and the gaps are %v", reads, len(l.got), l.gaps)
		}
		if dropped {
			l.check()
			return
		}
	}
}

// A taker is a client that notes the ids of the events and the gap that it gets while it joins.
type taker struct {
	hub.Subscriber
	ids    []string
	reason string
	missed []event.Miss
}

func newTaker() *taker {
	c := new(taker)
	c.To = c
	return c
}

func (c *taker) Send(_ int, e *event.Event) bool {
	c.ids = append(c.ids, e.At.String())
	return true
}

func (c *taker) Gap(topic int, reason string, missed event.Span) {
	c.reason, c.missed = reason, append(c.missed, c.MissOf(topic, missed))
}

func (c *taker) Flush(context.Context) error { return nil }
