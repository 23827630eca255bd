package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/stream"
)

// shardTopics are more topics than there are shards, so that each shard has some.
const shardTopics = 12

// A shardClient is one that comes again and again, from an id to the end.
type shardClient struct {
	name    string
	way     string
	filters []string
}

var shardClients = []shardClient{
	{"a topic by Server-Sent Events", "sse", []string{"t.3"}},
	{"a wildcard by Server-Sent Events", "sse", []string{"t.*"}},
	{"several topics by Server-Sent Events", "sse", []string{"t.1", "none.*", "t.2", "t.>"}},
	{"a topic by WebSocket", "socket", []string{"t.4"}},
	{"a wildcard by WebSocket", "socket", []string{"t.*"}},
	{"several topics by WebSocket", "socket", []string{"t.5", "t.*"}},
	{"a topic by polls", "poll", []string{"t.6"}},
	{"a wildcard by polls", "poll", []string{">"}},
	{"several topics by polls", "poll", []string{"t.7", "t.8", "t.*"}},
}

// A shardReader reads events, and knows the positions with which it goes on.
type shardReader struct {
	c     *shardClient
	r     reader
	after []string
}

// open subscribes after the ids of a client, which are one for each filter, or one for all of
// Server-Sent Events.
func (c *shardClient) open(t *testing.T, s *site, after []string) *shardReader {
	t.Helper()
	q := url.Values{"topic": c.filters}
	x := &shardReader{c: c, after: after}
	switch c.way {
	case "sse":
		r, err := openSSE(s.url, q.Encode(), strings.Join(after, ""))
		must(t, err)
		x.r, x.after = r, []string{r.lastID}
	case "socket":
		q["after"] = after
		r, err := openWS(s.url, q.Encode())
		if err != nil {
			t.Fatalf("%s after %v: %v", c.name, after, err)
		}
		if r.first.Gap != "" {
			t.Errorf("%s after %v: %+v", c.name, after, r.first)
		}
		x.r, x.after = r, r.first.Last
	case "poll":
		x.r = &pollReader{url: s.url, topics: c.filters, after: after}
	}
	return x
}

// next reads an event, and moves the positions.
func (x *shardReader) next(t *testing.T) message {
	t.Helper()
	m, err := x.r.next()
	must(t, err)
	x.after = slices.Clone(x.after)
	switch r := x.r.(type) {
	case *sseReader:
		x.after = []string{r.lastID}
	case *pollReader:
		if len(r.have) == 0 {
			x.after = slices.Clone(r.after)
		} else { // what came in one answer has one end
			x.after = nil
		}
	default:
		if topic, _, _ := strings.Cut(m.Data, " "); m.Gap == "" {
			i := slices.IndexFunc(x.c.filters, func(f string) bool { return event.Covers(f, topic) })
			x.after[i] = m.ID
		}
	}
	return m
}

// A shardCut is what a client had when it was cut off.
type shardCut struct {
	c     *shardClient
	after []string
	got   map[string]int // by topic, the number of the last event
}

// A shardTest publishes numbered events, and has clients that get them.
type shardTest struct {
	t    *testing.T
	s    *site
	n    map[string]int // by topic, the events that were published
	cuts []shardCut
}

func (x *shardTest) publish(events int) {
	x.t.Helper()
	for i := range events {
		topic := fmt.Sprint("t.", i%shardTopics)
		x.n[topic]++
		x.s.publish(topic, fmt.Sprintf("%s %d", topic, x.n[topic]))
	}
}

// follow reads what a client has missed since a cut, and checks that it is all, once, and in the order
// of each topic. If notes is set, each place is a further cut.
func (x *shardTest) follow(cut shardCut, notes bool) {
	x.t.Helper()
	c := cut.c
	got := map[string]int{}
	left := 0
	for topic, n := range x.n {
		if slices.ContainsFunc(c.filters, func(f string) bool { return event.Covers(f, topic) }) {
			got[topic] = cut.got[topic]
			left += n - got[topic]
		}
	}
	if left == 0 {
		return
	}
	r := c.open(x.t, x.s, cut.after)
	defer r.r.close()
	for ; left > 0; left-- {
		m := r.next(x.t)
		var topic string
		var n int
		if _, err := fmt.Sscan(m.Data, &topic, &n); err != nil || m.Gap != "" {
			x.t.Fatalf("%s after %v: %+v", c.name, cut.after, m)
		}
		if n != got[topic]+1 {
			x.t.Fatalf("%s after %v: got %q after %d, the id is %s", c.name, cut.after, m.Data, got[topic], m.ID)
		}
		got[topic]++
		if notes && r.after != nil {
			now := map[string]int{}
			for topic, n := range got {
				now[topic] = n
			}
			x.cuts = append(x.cuts, shardCut{c, r.after, now})
		}
	}
}

// begin makes the first cuts: each client is there before the first event.
func (x *shardTest) begin() {
	for i := range shardClients {
		c := &shardClients[i]
		after := []string{event.Beginning}
		if c.way == "sse" {
			r := c.open(x.t, x.s, nil)
			after = r.after
			r.r.close()
		}
		x.cuts = append(x.cuts, shardCut{c: c, after: after})
	}
}

func newShardTest(t *testing.T, s *site) *shardTest {
	x := &shardTest{t: t, s: s, n: map[string]int{}}
	x.begin()
	return x
}

// Clients of four shards get each event once, those of a topic in order, wherever they are cut off.
func TestShards(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Stream: StreamConfig{Shards: 4}})
	if n := len(s.hub.Shards); n != 4 {
		t.Fatalf("%d shards", n)
	}
	x := newShardTest(t, s)
	x.publish(3 * shardTopics)
	begin := x.cuts
	for _, cut := range begin {
		x.follow(cut, true)
	}
	for i, shard := range s.hub.Shards {
		if s := must1(shard.History.State(t.Context())); s.Last < 3 {
			t.Errorf("shard %d has %d events", i, s.Last)
		}
	}
	for i, cut := range x.cuts {
		if i%3 == 0 { // others are alike
			x.follow(cut, false)
		}
	}
}

// The events that come while a client is connected come in the same way, and through a feed that has to
// read the streams.
func TestShardsLive(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Stream: StreamConfig{Shards: 3}, Heartbeat: 10 * time.Millisecond})
	x := newShardTest(t, s)
	x.publish(shardTopics)
	for _, first := range x.cuts[:len(shardClients)] {
		x.follow(first, true)
	}
	var last []shardCut // of each client
	for i := range shardClients {
		for _, cut := range x.cuts {
			if cut.c == &shardClients[i] && len(last) == i {
				last = append(last, cut)
			} else if cut.c == &shardClients[i] {
				last[i] = cut
			}
		}
	}
	following := make(chan struct{}, len(last))
	ahead := 2 * shardTopics
	for i := range shardTopics {
		x.n[fmt.Sprint("t.", i)] += ahead / shardTopics
	}
	for _, cut := range last {
		go func() {
			defer func() { following <- struct{}{} }()
			x.follow(cut, false)
		}()
	}
	for i := range ahead {
		topic := fmt.Sprint("t.", i%shardTopics)
		s.publish(topic, fmt.Sprintf("%s %d", topic, 2+i/shardTopics))
	}
	for range last {
		<-following
	}
}

// The number of shards changes, by a restore or in place. Clients go on with the ids that they have,
// also in the middle of what earlier streams have, and with those of all numbers before.
func TestReshard(t *testing.T) {
	for _, c := range []struct {
		numbers []int
		inPlace bool
	}{
		{[]int{1, 4}, false},
		{[]int{4, 1}, false},
		{[]int{1, 4}, true},
		{[]int{4, 1}, true},
		{[]int{2, 3, 1, 4}, false},
		{[]int{1, 3, 2}, true},
	} {
		t.Run(fmt.Sprint(c.numbers, " in place: ", c.inPlace), func(t *testing.T) {
			node := newNode(t, NodeConfig{Store: t.TempDir()})
			var x *shardTest
			var backup bytes.Buffer
			for round, number := range c.numbers {
				config := Config{Stream: StreamConfig{Shards: number, MaxAge: time.Hour}}
				switch {
				case round == 0:
				case c.inPlace:
					must(t, Reshard(t.Context(), node.Conn, "", number))
				default:
					node = newNode(t, NodeConfig{Store: t.TempDir()})
					config.Stream.Restore = bytes.NewReader(bytes.Clone(backup.Bytes()))
				}
				t.Run(fmt.Sprint(number), func(t *testing.T) {
					s := newSiteOn(t, node, config)
					if n := len(s.hub.Shards); n != number {
						t.Fatalf("%d shards", n)
					}
					if x == nil {
						x = newShardTest(t, s)
					}
					x.t, x.s = t, s
					x.publish(2 * shardTopics)
					known := x.cuts
					for i, cut := range known {
						if i < len(shardClients) || i%7 == round { // others are alike
							x.follow(cut, i < len(shardClients))
						}
					}
					x.publish(shardTopics) // that no client has
				})
				if t.Failed() {
					return
				}
				backup.Reset()
				if !c.inPlace {
					must(t, CloseStream(t.Context(), node.Conn, ""))
					must(t, Backup(t.Context(), node.Conn, "", &backup))
				}
			}
		})
	}
}

// A backup that was not the last one lacks events. Clients that have seen them are told, by a gap, also
// where the number of shards changes with the restore.
func TestReshardOldBackup(t *testing.T) {
	for _, c := range []struct{ from, to int }{{1, 4}, {4, 1}, {4, 4}} {
		t.Run(fmt.Sprint(c.from, " to ", c.to), func(t *testing.T) {
			s := newSite(t, t.TempDir(), Config{Stream: StreamConfig{Shards: c.from}})
			x := newShardTest(t, s)
			x.publish(shardTopics)
			var backup bytes.Buffer
			must(t, Backup(t.Context(), s.node.Conn, "", &backup))
			x.publish(shardTopics)
			begin := x.cuts
			x.cuts = nil
			for _, cut := range begin {
				x.follow(cut, true)
			}
			restored := newSite(t, t.TempDir(), Config{Stream: StreamConfig{Shards: c.to, Restore: bytes.NewReader(backup.Bytes())}})
			restored.publish("t.3", "t.3 new")
			for _, cut := range x.cuts {
				if cut.c.name != "a topic by Server-Sent Events" && cut.c.name != "a wildcard by Server-Sent Events" {
					continue
				}
				r, err := openSSE(restored.url, url.Values{"topic": cut.c.filters}.Encode(), cut.after[0])
				must(t, err)
				m, err := r.next()
				must(t, err)
				if m.Gap != event.GapEpoch || m.Missed[0].Topic != cut.c.filters[0] {
					t.Errorf("%s after %v: got %+v, want a gap", cut.c.name, cut.after, m)
				}
				for m.Data != "t.3 new" {
					m, err = r.next()
					must(t, err)
					topic, n := "", 0
					fmt.Sscan(m.Data, &topic, &n)
					if m.Data != "t.3 new" && (n != 1 || cut.got[topic] > 0) {
						t.Errorf("%s after %v: got %q, which it has or which is lost", cut.c.name, cut.after, m.Data)
					}
				}
				r.close()
			}
		})
	}
}

// A restore of several streams that was interrupted goes on.
func TestRestoreShardsInterrupted(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Stream: StreamConfig{Shards: 3}})
	x := newShardTest(t, s)
	x.publish(shardTopics)
	must(t, CloseStream(t.Context(), s.node.Conn, ""))
	var backup bytes.Buffer
	must(t, Backup(t.Context(), s.node.Conn, "", &backup))
	whole := stream.Config{Name: stream.DefaultName, Replicas: 1, Restore: bytes.NewReader(backup.Bytes())}
	for name, prepare := range map[string]func(*testing.T, *Node){
		"after all streams": func(t *testing.T, node *Node) {
			must(t, stream.Restore(t.Context(), node.Conn, whole))
		},
		"before the last stream": func(t *testing.T, node *Node) {
			must(t, stream.Restore(t.Context(), node.Conn, whole))
			must(t, must1(jetstream.New(node.Conn)).DeleteStream(t.Context(), stream.DefaultName))
		},
	} {
		for _, to := range []int{3, 2} {
			t.Run(fmt.Sprint(name, ", to ", to), func(t *testing.T) {
				node := newNode(t, NodeConfig{Store: t.TempDir()})
				prepare(t, node)
				x.t, x.s = t, newSiteOn(t, node, Config{Stream: StreamConfig{Shards: to, Restore: bytes.NewReader(backup.Bytes())}})
				for _, cut := range x.cuts {
					x.follow(cut, false)
				}
			})
		}
	}
}

// A node that wants another number of shards than the store has is refused, and told what to do.
func TestShardsMismatch(t *testing.T) {
	node := newNode(t, NodeConfig{Store: t.TempDir()})
	start := func(n int) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		g, err := New(ctx, Config{Conn: node.Conn, Logger: quiet, Stream: StreamConfig{Shards: n}})
		if err == nil {
			must(t, g.Shutdown(t.Context()))
		}
		return err
	}
	refused := func(n, has int) {
		t.Helper()
		err := start(n)
		if text := fmt.Sprintf("Shards is %d, and the store has %d", n, has); !errors.Is(err, ErrStream) ||
			!strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), "reshard") {
			t.Errorf("%d shards: %v", n, err)
		}
	}
	must(t, start(0)) // as an installation from before there were shards
	refused(4, 1)
	must(t, start(1))
	must(t, Reshard(t.Context(), node.Conn, "", 4))
	must(t, Reshard(t.Context(), node.Conn, "", 4)) // nothing is to do
	refused(1, 4)
	refused(2, 4)
	must(t, start(4))
	must(t, start(0))
	for _, n := range []int{0, -1, MaxShards + 1} {
		if err := Reshard(t.Context(), node.Conn, "", n); !errors.Is(err, socknotify.ErrInvalid) {
			t.Errorf("%d shards: %v", n, err)
		}
	}
	if err := start(MaxShards + 1); !errors.Is(err, socknotify.ErrInvalid) {
		t.Errorf("too many shards: %v", err)
	}
	must(t, must1(jetstream.New(node.Conn)).DeleteStream(t.Context(), stream.DefaultName+"-1-2"))
	if err := start(4); !errors.Is(err, ErrStream) || !strings.Contains(err.Error(), "PUSH-1-2 does not exist") {
		t.Errorf("a stream was deleted: %v", err)
	}
}

// A gateway that runs while the number of shards changes ends, and takes no event that others would not
// know of.
func TestReshardUnderAGateway(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	s.publish("a", "x")
	must(t, Reshard(t.Context(), s.node.Conn, "", 2))
	if _, err := s.Publish(t.Context(), "a", []byte("y"), ""); !errors.Is(err, ErrUnavailable) {
		t.Errorf("published: %v", err)
	}
	s.Changed()
	<-s.Failed()
}

// A wildcard begins with the last events of all shards that were stored, by their time.
func TestLastOverShards(t *testing.T) {
	node := newNode(t, NodeConfig{Store: t.TempDir()})
	n := 0
	for _, shards := range []int{1, 4} {
		if shards > 1 {
			must(t, Reshard(t.Context(), node.Conn, "", shards))
		}
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			s := newSiteOn(t, node, Config{Stream: StreamConfig{Shards: shards}})
			for range 10 {
				n++
				s.publish(fmt.Sprint("t.", n%shardTopics), fmt.Sprint(n))
			}
			for _, last := range []int{1, 3, 9, 14, 100} {
				want := min(last, n)
				_, body := s.request("GET", fmt.Sprintf("/poll?topic=t.*&last=%d", last), "")
				for i := n - want + 1; i <= n; i++ {
					if !strings.Contains(body, fmt.Sprintf(`"data":"%d"`, i)) {
						t.Errorf("last=%d of %d: %d is missing in %s", last, n, i, body)
					}
				}
				if got := strings.Count(body, `"data":`); got != want {
					t.Errorf("last=%d of %d: got %d events", last, n, got)
				}
			}
		})
	}
}

// A client of a wildcard whose events have left some of the shards is told of a gap that has exactly
// these, and gets the others.
func TestShardsRetention(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Stream: StreamConfig{Shards: 4, MaxBytes: 32 << 10}})
	x := newShardTest(t, s)
	var ids []event.Position // of the events
	var topics []string
	for i := range 400 {
		topic := fmt.Sprint("t.", i%shardTopics)
		p, err := event.ParsePositions(s.publish(topic, fmt.Sprintf("%s %d ", topic, i)+strings.Repeat("x", 500)))
		must(t, err)
		ids, topics = append(ids, p[0]), append(topics, topic)
	}
	for round, name := range []string{"a wildcard by Server-Sent Events", "several topics by Server-Sent Events", "a topic by Server-Sent Events"} {
		i := slices.IndexFunc(shardClients, func(c shardClient) bool { return c.name == name })
		cut := x.cuts[i]
		r := cut.c.open(t, s, cut.after).r
		got := map[int]bool{}
		var gaps []event.Miss
		left := 0 // the shards have no order among them
		for i := range shardTopics {
			topic := fmt.Sprint("t.", i)
			s.publish(topic, fmt.Sprint(topic, " ", 1000*(round+1)+i))
			if slices.ContainsFunc(cut.c.filters, func(f string) bool { return event.Covers(f, topic) }) {
				left++
			}
		}
		for left > 0 {
			m, err := r.next()
			must(t, err)
			if gaps = append(gaps, m.Missed...); m.Gap != "" {
				continue
			}
			topic, n := "", 0
			if _, err := fmt.Sscan(m.Data, &topic, &n); err != nil || got[n] {
				t.Fatalf("%s: got %q: %v", name, m.Data, err)
			}
			if got[n] = true; n >= 1000*(round+1) {
				left--
			}
		}
		r.close()
		lost := 0
		for n, id := range ids {
			filter := slices.IndexFunc(cut.c.filters, func(f string) bool { return event.Covers(f, topics[n]) })
			if filter < 0 {
				continue
			}
			in := false
			for _, g := range gaps {
				if g.Topic != cut.c.filters[filter] {
					continue
				}
				after, err := event.ParsePositions(g.After)
				must(t, err)
				last, err := event.ParsePositions(g.Last)
				must(t, err)
				shard := 0
				if after[0].Width() > 1 {
					shard = event.ShardOf(topics[n], 4)
				}
				in = in || after[0].In(shard) < id.Seq && id.Seq <= last[0].In(shard)
			}
			if in == got[n] {
				t.Fatalf("%s: event %d, %v of %s: it has come: %v, it is in a gap: %v; the gaps are %+v", name, n, id, topics[n], got[n], in, gaps)
			}
			if in {
				lost++
			}
		}
		if lost == 0 {
			t.Errorf("%s: no event has left the stream", name)
		}
	}
}

// What programs publish on NATS goes to the shard of its topic, and has the answer of that.
func TestShardsFromNATS(t *testing.T) {
	address := freeAddr(t)
	node := newNode(t, NodeConfig{Store: t.TempDir(), Listen: address})
	s := newSiteOn(t, node, Config{Stream: StreamConfig{Shards: 4}})
	conn, err := nats.Connect("nats://" + address)
	must(t, err)
	defer conn.Close()
	for i := range shardTopics {
		topic := fmt.Sprint("t.", i)
		answer, err := conn.Request(event.StoredPrefix+topic, []byte("by NATS"), time.Minute)
		must(t, err)
		name := stream.DefaultName
		if shard := event.ShardOf(topic, 4); shard > 0 {
			name = fmt.Sprintf("PUSH-0-%d", shard)
		}
		if !strings.Contains(string(answer.Data), fmt.Sprintf("%q", name)) || strings.Contains(string(answer.Data), "error") {
			t.Errorf("%s: %s, want one of %s", topic, answer.Data, name)
		}
		_, body := s.request("GET", "/poll?after=first&topic="+topic, "")
		if !strings.Contains(body, `"data":"by NATS"`) {
			t.Errorf("%s: %s", topic, body)
		}
	}
	refused := make(chan error, 1)
	conn.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err })
	must(t, conn.Publish("push.s.1.t.0", []byte("in a shard of another topic")))
	if err := <-refused; !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("got %v", err)
	}
}

// Updates of Mercure are found by their ids after the number of shards has changed, those that a
// publisher has chosen too.
func TestReshardMercure(t *testing.T) {
	node := newNode(t, NodeConfig{Store: t.TempDir()})
	config := mercureTestConfig()
	config.Mercure = &MercureConfig{}
	token := mercureTestToken(t, 0, []string{"*"}, []string{"*"})
	var ids []string
	for round, shards := range []int{1, 4, 2} {
		if round > 0 {
			must(t, Reshard(t.Context(), node.Conn, "", shards))
		}
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			m := mercureSite{newSiteOn(t, node, config)}
			for i := range 4 {
				n := len(ids)
				var more []string
				if i%2 == 1 {
					more = []string{"id", fmt.Sprint("urn:", n)}
				}
				ids = append(ids, m.update(token, fmt.Sprint("https://example.org/", n), fmt.Sprint(n), more...))
			}
			for n, id := range ids[:len(ids)-1] {
				u := m.open(query("*")+"&authorization="+token, "Last-Event-ID", id)
				for next := n + 1; next < len(ids); next++ {
					got, err := u.sseReader.next()
					must(t, err)
					if got.Data != fmt.Sprint(next) {
						t.Fatalf("after %s: got %+v, want %d", id, got, next)
					}
				}
				u.close()
			}
		})
	}
}

// Orders reach the clients of four shards, and presence is as with one.
func TestShardsControl(t *testing.T) {
	s, _ := guarded(t, Config{Stream: StreamConfig{Shards: 4}, Presence: []string{"room.*"}})
	backend := backendToken(t)
	r, err := openWS(s.url, "topic=room.1&topic=x&token="+user(t, "alice"))
	must(t, err)
	defer r.close()
	until(t, "alice is present", func() bool { return len(s.present("room.1", backend...)) == 1 })
	s.order("/unsubscribe", url.Values{"user": {"alice"}, "topic": {"room.1"}}, backend)
	until(t, "alice has left", func() bool { return len(s.present("room.1", backend...)) == 0 })
	s.order("/disconnect", url.Values{"user": {"alice"}}, backend)
	for err == nil {
		_, err = r.read()
	}
	if !strings.Contains(err.Error(), "disconnected") {
		t.Errorf("got %v", err)
	}
}

// Four shards of a cluster have their leaders on all of its members. When a member ends, the others go
// on with all shards, and no client misses an event.
func TestShardsOfACluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	setLeaderRest(t, 100*time.Millisecond)
	nodes := newCluster(t)
	sites := make([]*site, len(nodes))
	starting := make(chan struct{}, len(nodes))
	for i, node := range nodes {
		go func() {
			defer func() { starting <- struct{}{} }()
			sites[i] = newSiteOn(t, node, Config{Stream: StreamConfig{Shards: 4, Replicas: 3}})
		}()
	}
	for range nodes {
		<-starting
	}
	if t.Failed() {
		t.FailNow()
	}
	until(t, "the leaders are spread", func() bool {
		var leaders []string
		for _, m := range sites[0].Members() {
			if m.Leader {
				leaders = append(leaders, fmt.Sprint(m.Shard, " ", m.Name))
			}
		}
		return slices.Equal(leaders, []string{"0 n0", "1 n1", "2 n2", "3 n0"})
	})
	x := newShardTest(t, sites[0])
	x.publish(shardTopics)
	first := x.cuts
	for _, cut := range first {
		x.follow(cut, true)
	}
	nodes[1].Close()
	for i := range shardTopics {
		topic := fmt.Sprint("t.", i)
		x.n[topic]++
		data := fmt.Sprintf("%s %d", topic, x.n[topic])
		until(t, "publishing goes on", func() bool {
			_, err := sites[2].Publish(t.Context(), topic, []byte(data), data)
			return err == nil
		})
	}
	until(t, "all shards have a leader", func() bool {
		for _, shard := range sites[2].hub.Shards {
			if _, err := shard.History.State(t.Context()); err != nil {
				return false
			}
		}
		return true
	})
	for _, cut := range x.cuts {
		x.s = sites[2]
		x.follow(cut, false)
	}
}

// setLeaderRest sets the time between two moves of a leader, for a test.
func setLeaderRest(t testing.TB, d time.Duration) {
	before := hub.LeaderRest
	hub.LeaderRest = d
	t.Cleanup(func() { hub.LeaderRest = before })
}
