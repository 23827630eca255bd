package presence

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
)

// Presence is who is on a topic. Who joins and leaves topic T is told as an event of the live topic
// $presence.T, by the node of the client that does. Each node that has a subscriber to $presence.T
// keeps a roster of T, in the feed of $presence.T. It asks all nodes for their members of T when
// the feed is made, and every presenceInterval after that: so a roster becomes right again after
// events were lost, and after a node was killed. A node that is not heard of for presenceTTL has no
// members.
//
// A node keeps no list of its own members: they are those of the feed of T.
type Presence struct {
	access  *access.Control
	hub     *hub.Hub
	filters []string // topics that have presence
	telling sync.Mutex

	mu    sync.Mutex
	nodes map[string]time.Time // when each node was heard of, this one included
}

const (
	askSubject   = "push.p.ask"   // a request with a topic; each node answers with a nodeAnswer
	countSubject = "push.p.count" // likewise, with a nodeTally
	hereSubject  = "push.p.here"  // the name of a node, every presenceBeat and for a new one
	// A roster has at most so many members, and so many bytes of their names.
	maxMembers     = 1000
	maxMemberBytes = 64 << 10
)

// Variables, so that tests need not wait.
var (
	Interval = 10 * time.Second
	Beat     = 2 * time.Second
	TTL      = 10 * time.Second
	Patience = time.Second // with a node that does not answer
)

// An attendee is a connection that is subscribed to a topic.
type attendee struct {
	Client string `json:"client"`
	User   string `json:"user,omitempty"`
}

// node returns the node of a member.
func (m *attendee) node() string {
	node, _, _ := strings.Cut(m.Client, "-")
	return node
}

func (m *attendee) size() int { return len(m.Client) + len(m.User) }

// A movement is the data of an event of presence.
type movement struct {
	Join  *attendee `json:"join,omitempty"`
	Leave *attendee `json:"leave,omitempty"`
}

// An attendance is the data of the first event of presence that a client gets, and the answer to
// GET /presence. It is Full if the roster is, so that there may be more members.
type attendance struct {
	Members []attendee `json:"members"`
	Full    bool       `json:"full,omitempty"`
}

// A nodeAnswer has the members of a topic on a node.
type nodeAnswer struct {
	Node string `json:"node"`
	attendance
}

// A nodeTally is the number of members of a topic on a node.
type nodeTally struct {
	Node string `json:"node"`
	tally
}

// New returns the presence of the topics that match filters. start must follow, unless there
// are none and nothing asks nodes.
func New(access *access.Control, filters []string) *Presence {
	return &Presence{access: access, hub: access.Hub, filters: filters, nodes: make(map[string]time.Time)}
}

// Start answers the questions of other nodes, and keeps rosters, until the hub is closed.
func (p *Presence) Start() error {
	h := p.hub
	p.Heard(h.Clients.Node)
	here, err := h.Conn.Subscribe(hereSubject, func(m *nats.Msg) {
		if p.Heard(string(m.Data)) {
			p.here() // it may not know this node either
		}
	})
	if err != nil {
		return fmt.Errorf("gateway: presence: %w", err)
	}
	asked, err := h.Conn.Subscribe(askSubject, func(m *nats.Msg) {
		h.Conn.Publish(m.Reply, event.Encode(nodeAnswer{h.Clients.Node, p.local(string(m.Data))}))
	})
	if err != nil {
		here.Unsubscribe()
		return fmt.Errorf("gateway: presence: %w", err)
	}
	counted, err := h.Conn.Subscribe(countSubject, func(m *nats.Msg) {
		h.Conn.Publish(m.Reply, event.Encode(nodeTally{h.Clients.Node, p.tally(string(m.Data))}))
	})
	if err != nil {
		here.Unsubscribe()
		asked.Unsubscribe()
		return fmt.Errorf("gateway: presence: %w", err)
	}
	h.Own(event.PresencePrefix, p.newRoster)
	h.OnChange = p.tell
	p.here()
	h.Work.Go(func() {
		p.run()
		here.Unsubscribe()
		asked.Unsubscribe()
		counted.Unsubscribe()
	})
	return nil
}

// has reports whether a topic has presence.
func (p *Presence) has(topic string) bool {
	return p.access.HasPresence(topic, event.Allows(p.filters, topic))
}

// run says that this node is here, and brings the rosters up to date.
func (p *Presence) run() {
	beat, refresh := time.NewTicker(Beat), time.NewTicker(Interval)
	defer beat.Stop()
	defer refresh.Stop()
	var working sync.WaitGroup
	defer working.Wait()
	idle := make(chan struct{}, 1)
	idle <- struct{}{}
	for {
		select {
		case <-beat.C:
			p.here()
		case <-refresh.C:
			select {
			case <-idle:
				working.Go(func() {
					p.refreshAll()
					idle <- struct{}{}
				})
			default: // the last round is under way
			}
		case <-p.hub.Ctx.Done():
			return
		}
	}
}

func (p *Presence) here() { p.hub.Conn.Publish(hereSubject, []byte(p.hub.Clients.Node)) }

// Heard notes that a node is there. It reports whether the node was not known.
func (p *Presence) Heard(node string) (unknown bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.nodes[node]
	p.nodes[node] = time.Now()
	return !known
}

// living returns the nodes that were heard of, and forgets the others.
func (p *Presence) living() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]bool{p.hub.Clients.Node: true}
	for node, at := range p.nodes {
		if time.Since(at) < TTL {
			all[node] = true
		} else {
			delete(p.nodes, node)
		}
	}
	return all
}

// local returns the members of a topic on this node.
func (p *Presence) local(topic string) attendance {
	a := attendance{Members: []attendee{}}
	f := p.hub.Feed(topic)
	if f == nil || !p.counts(f) {
		return a
	}
	bytes := 0
	f.Each(func(s *hub.Subscriber, told bool) bool {
		if !present(s) || !told { // it may leave before it has joined all
			return true
		}
		one := p.memberOf(s)
		if bytes += one.size(); len(a.Members) == maxMembers || bytes > maxMemberBytes {
			a.Full = true
			return false
		}
		a.Members = append(a.Members, one)
		return true
	})
	return a
}

// tally returns the number of a topic's members on this node.
func (p *Presence) tally(topic string) (n tally) {
	f := p.hub.Feed(topic)
	if f == nil || !p.counts(f) {
		return n
	}
	f.Each(func(s *hub.Subscriber, told bool) bool {
		if present(s) && told {
			n.Count++
		}
		return true
	})
	return n
}

// counts reports whether the clients of a feed are the members of its topic.
func (p *Presence) counts(f *hub.Feed) bool {
	return !f.Wild && !event.IsReserved(f.Filter()) && p.has(f.Filter())
}

// A visitor is the sink of a client that is gone after each event, such as a long poll.
type visitor interface{ Visits() }

// present reports whether a client is a member of its topics. A visitor is not.
func present(s *hub.Subscriber) bool {
	_, visits := s.To.(visitor)
	return s.ID != 0 && !visits
}

func (p *Presence) memberOf(s *hub.Subscriber) attendee {
	return attendee{p.hub.Clients.NameOf(s), s.User}
}

// tell tells the others that a client has joined or left one of its topics, if that has presence and
// they do not know it yet. A client may be unsubscribed while it joins, so what counts is whether it
// is a member now, and the events are published in the order of that.
func (p *Presence) tell(s *hub.Subscriber, topic int) {
	f := s.Topics[topic].Feed
	if !p.counts(f) || !present(s) {
		return
	}
	p.telling.Lock()
	defer p.telling.Unlock()
	joined, news := f.Moved(s, topic)
	if !news {
		return
	}
	m := p.memberOf(s)
	what := movement{Leave: &m}
	if joined {
		what = movement{Join: &m}
	}
	p.hub.Conn.Publish(event.LivePrefix+event.PresencePrefix+f.Filter(), event.Encode(what))
}

// ask asks all nodes for their members of a topic. Rosters keep the members of a node that does not
// answer, as long as it is there.
func (p *Presence) ask(ctx context.Context, topic string) (map[string]attendance, error) {
	answers := make(map[string]attendance)
	err := AskNodes(ctx, p, askSubject, topic, func(a nodeAnswer) (string, bool) {
		p.Heard(a.Node)
		answers[a.Node] = a.attendance
		return a.Node, true
	})
	return answers, err
}

// AskNodes asks all nodes. It waits for the answers of those that are there, up to
// presencePatience. take returns the node that an answer is from, and reports whether it is the
// node's last one.
func AskNodes[A any](ctx context.Context, p *Presence, subject, topic string,
	take func(A) (node string, last bool)) error {
	inbox := p.hub.Conn.NewInbox()
	sub, err := p.hub.Conn.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer sub.Unsubscribe()
	if err := p.hub.Conn.PublishRequest(subject, inbox, []byte(topic)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for awaited := p.living(); len(awaited) > 0; {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			break
		}
		var answer A
		if json.Unmarshal(m.Data, &answer) != nil {
			p.hub.Count.Strange.Add(1)
			continue
		}
		if node, last := take(answer); last {
			delete(awaited, node)
		}
	}
	return nil
}

// refreshAll brings the rosters of this node up to date.
func (p *Presence) refreshAll() {
	for _, f := range p.hub.All() {
		begun := p.hub.HasBegun(f) // otherwise its first question is under way
		if r, ok := f.Special.(*roster); ok && begun && p.hub.Ctx.Err() == nil {
			r.Begin(p.hub.Ctx)
		}
	}
}
