package gateway

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/stream"
)

// pretend makes the stream's server answer what it says of the stream now, as one of several
// replicas with this leader and these other members. It does so until the returned function is
// called.
func pretend(t *testing.T, s *site, leader string, others []stream.Replica) (end func()) {
	t.Helper()
	const subject, own = "$JS.API.STREAM.INFO." + stream.DefaultName, "test.info"
	m, err := s.node.Conn.RequestWithContext(t.Context(), subject, nil)
	must(t, err)
	var info map[string]any
	must(t, json.Unmarshal(m.Data, &info))
	info["config"].(map[string]any)["num_replicas"] = 3
	info["cluster"] = map[string]any{"leader": leader, "replicas": others}
	sub, err := s.node.Conn.Subscribe(own, func(m *nats.Msg) { m.Respond(event.Encode(info)) })
	must(t, err)
	account := s.node.Server.GlobalAccount()
	must(t, account.AddMapping(subject, own))
	return func() {
		account.RemoveMapping(subject)
		must(t, sub.Unsubscribe())
	}
}

// newLoose starts a gateway on a stream whose events can be deleted, so that a test need not wait
// for their age.
func newLoose(t *testing.T, config Config) (*site, jetstream.Stream) {
	t.Helper()
	node := newNode(t, NodeConfig{Store: t.TempDir()})
	js, err := jetstream.New(node.Conn)
	must(t, err)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: stream.DefaultName, Subjects: []string{event.StoredPrefix + ">"}, AllowDirect: true, MaxAge: time.Hour,
		RePublish: &jetstream.RePublish{
			Source: event.StoredPrefix + ">", Destination: event.RepublishedPrefix + ">"},
		Metadata: map[string]string{stream.EpochKey: "e"},
	})
	must(t, err)
	return newSiteOn(t, node, config), stream
}

// A node that was stopped for longer than the retention finds its topic empty, and what an event
// has as its predecessor is gone. Its client is told of all that it has missed, whatever the node's
// own server takes for the end of the stream, and however little time has passed by its own clock.
func TestStoppedNode(t *testing.T) {
	const recent, old = time.Millisecond, time.Minute
	for name, c := range map[string]struct {
		leader string
		others []stream.Replica
		late   time.Duration // by which the leader's clock is ahead of the node's
	}{
		"a replica without a leader": {"", []stream.Replica{
			{Name: "a", Active: recent}, {Name: "b", Active: recent}, {Name: "c", Active: old}}, 0},
		"a leader that has heard of none": {"a", []stream.Replica{
			{Name: "b", Active: old}, {Name: "c", Active: old}}, 0},
		"its clock stood still": {"a", []stream.Replica{
			{Name: "b", Active: recent}, {Name: "c", Active: recent}}, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s, stream := newLoose(t, Config{})
			r, err := openSSE(s.url, "topic=a", "")
			must(t, err)
			defer r.close()
			until(t, "the client has joined", func() bool { return s.members() == 1 })
			l := ledger{t: t}
			l.publish(s, "a", "first")
			l.read(r)
			f := s.hub.All()[0]
			must(t, f.Sub.Unsubscribe()) // the node is stopped
			must(t, s.node.Conn.Flush())
			end := pretend(t, s, c.leader, c.others)
			for range 20 {
				l.publish(s, "a", "lost")
			}
			must(t, stream.Purge(t.Context()))
			audits := s.Stats().Audits // one that is under way may have asked before
			until(t, "an audit asks after the events are gone", func() bool {
				s.Changed()
				return s.Stats().Audits > audits+1
			})
			republished, err := s.node.Conn.SubscribeSync(f.Subject)
			must(t, err)
			l.publish(s, "a", "last")
			m, err := republished.NextMsgWithContext(t.Context())
			must(t, err)
			if got := m.Header.Get("Nats-Last-Sequence"); got != "0" {
				t.Fatalf("the predecessor of the last event is %s", got)
			}
			stamp, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
			must(t, err)
			m.Header.Set("Nats-Time-Stamp", stamp.Add(c.late).Format(time.RFC3339Nano))
			f.Receive(m)
			end()
			l.read(r)
			l.check()
			resubscribe(t, s, f)
		})
	}
}

// No client begins by what a server without a confirmed leader says of the stream: it is sent away
// to come back, also one that has seen more than that server has.
func TestBeginWithoutLeader(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	s.publish("a", "1")
	s.hub.Hold = 0
	end := pretend(t, s, "", []stream.Replica{{Name: "a"}, {Name: "b"}, {Name: "c", Active: time.Minute}})
	for _, after := range []uint64{1, 1 << 40} {
		r, err := openSSE(s.url, "topic=a", event.Position{Epoch: s.hub.Epoch, Seq: after}.String())
		if err == nil {
			r.close()
		}
		if err == nil || !strings.Contains(err.Error(), "503") {
			t.Errorf("after %d: %v", after, err)
		}
	}
	if _, err := s.hub.History.First(t.Context()); !errors.Is(err, stream.ErrNoLeader) {
		t.Errorf("first: %v", err)
	}
	if _, err := s.hub.Shards[0].AuditOnce(0); !errors.Is(err, stream.ErrNoLeader) {
		t.Errorf("an audit: %v", err)
	}
	if err := stream.EndEra(t.Context(), s.js(), stream.DefaultName, 0); !errors.Is(err, stream.ErrNoLeader) {
		t.Errorf("the end of an era: %v", err)
	}
	end()
	r, err := openSSE(s.url, "topic=a", event.Position{Epoch: s.hub.Epoch, Seq: 0}.String())
	must(t, err)
	defer r.close()
	expect(t, r, message{Data: "1"})
}
