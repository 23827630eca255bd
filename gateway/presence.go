package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Presence is who is on a topic. Who joins and leaves topic T is told as an event of the live topic
// $presence.T, by the node of the client that does. Each node that has a subscriber to $presence.T
// keeps a roster of T, in the feed of $presence.T. It asks all nodes for their members of T when
// the feed is made, and every presenceInterval after that: so a roster becomes right again after
// events were lost, and after a node was killed. A node that is not heard of for presenceTTL has no
// members.
//
// A node keeps no list of its own members: they are those of the feed of T.
type presence struct {
	hub     *hub
	filters []string // topics that have presence
	telling sync.Mutex

	mu    sync.Mutex
	nodes map[string]time.Time // when each node was heard of, this one included
}

const (
	presencePrefix = "$presence."
	askSubject     = "push.p.ask"  // a request with a topic; each node answers with a presenceAnswer
	hereSubject    = "push.p.here" // the name of a node, every presenceBeat and for a new one
	// A roster has at most so many members, and so many bytes of their names.
	maxMembers     = 1000
	maxMemberBytes = 64 << 10
)

// Variables, so that tests need not wait.
var (
	presenceInterval = 10 * time.Second
	presenceBeat     = 2 * time.Second
	presenceTTL      = 10 * time.Second
	presencePatience = time.Second // with a node that does not answer
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

// A presenceAnswer has the members of a topic on a node.
type presenceAnswer struct {
	Node string `json:"node"`
	attendance
}

// presenceOf returns the topic whose presence a topic has.
func presenceOf(topic string) (of string, ok bool) {
	return strings.CutPrefix(topic, presencePrefix)
}

// newPresence starts presence for the topics that match filters.
func newPresence(h *hub, filters []string) (*presence, error) {
	p := &presence{hub: h, filters: filters, nodes: make(map[string]time.Time)}
	p.heard(h.clients.node)
	here, err := h.conn.Subscribe(hereSubject, func(m *nats.Msg) {
		if p.heard(string(m.Data)) {
			p.here() // it may not know this node either
		}
	})
	if err != nil {
		return nil, fmt.Errorf("gateway: presence: %w", err)
	}
	asked, err := h.conn.Subscribe(askSubject, func(m *nats.Msg) {
		h.conn.Publish(m.Reply, encode(presenceAnswer{h.clients.node, p.local(string(m.Data))}))
	})
	if err != nil {
		here.Unsubscribe()
		return nil, fmt.Errorf("gateway: presence: %w", err)
	}
	p.here()
	h.work.Go(func() {
		p.run()
		here.Unsubscribe()
		asked.Unsubscribe()
	})
	return p, nil
}

// has reports whether a topic has presence. A nil presence has none.
func (p *presence) has(topic string) bool { return p != nil && allows(p.filters, topic) }

// run says that this node is here, and brings the rosters up to date.
func (p *presence) run() {
	beat, refresh := time.NewTicker(presenceBeat), time.NewTicker(presenceInterval)
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
		case <-p.hub.ctx.Done():
			return
		}
	}
}

func (p *presence) here() { p.hub.conn.Publish(hereSubject, []byte(p.hub.clients.node)) }

// heard notes that a node is there. It reports whether the node was not known.
func (p *presence) heard(node string) (unknown bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.nodes[node]
	p.nodes[node] = time.Now()
	return !known
}

// living returns the nodes that were heard of, and forgets the others.
func (p *presence) living() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]bool{p.hub.clients.node: true}
	for node, at := range p.nodes {
		if time.Since(at) < presenceTTL {
			all[node] = true
		} else {
			delete(p.nodes, node)
		}
	}
	return all
}

// local returns the members of a topic on this node.
func (p *presence) local(topic string) attendance {
	a := attendance{Members: []attendee{}}
	h := p.hub
	h.mu.RLock()
	f := h.feeds[subjectOf(topic)]
	h.mu.RUnlock()
	if f == nil || !f.counted() {
		return a
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	bytes := 0
	for _, m := range f.members {
		if !m.client.counts() || !m.client.topics[m.topic].told { // it may leave before it has joined all
			continue
		}
		one := h.memberOf(m.client)
		if bytes += one.size(); len(a.Members) == maxMembers || bytes > maxMemberBytes {
			a.Full = true
			break
		}
		a.Members = append(a.Members, one)
	}
	return a
}

// counts reports whether a subscriber is a member of its topics. The connection of a long poll is
// not, because it is gone after each event.
func (s *subscriber) counts() bool {
	_, poll := s.to.(*longPoll)
	return s.id != 0 && !poll
}

func (h *hub) memberOf(s *subscriber) attendee { return attendee{h.clients.name(s.id), s.user} }

// tell tells the others that a client has joined or left one of its topics, if that has presence and
// they do not know it yet. A client may be unsubscribed while it joins, so what counts is whether it
// is a member now, and the events are published in the order of that.
func (h *hub) tell(s *subscriber, topic int) {
	f := s.topics[topic].feed
	if !f.counted() || !s.counts() {
		return
	}
	h.presence.telling.Lock()
	defer h.presence.telling.Unlock()
	f.mu.Lock()
	joined := s.topics[topic].slot != 0
	told := s.topics[topic].told
	s.topics[topic].told = joined
	f.mu.Unlock()
	if joined == told {
		return
	}
	m := h.memberOf(s)
	what := movement{Leave: &m}
	if joined {
		what = movement{Join: &m}
	}
	h.conn.Publish(livePrefix+presencePrefix+f.filter(), encode(what))
}

// ask asks all nodes for their members of a topic. Rosters keep the members of a node that does not
// answer, as long as it is there.
func (p *presence) ask(ctx context.Context, topic string) (map[string]attendance, error) {
	answers := make(map[string]attendance)
	err := askNodes(ctx, p.hub, askSubject, topic, func(a presenceAnswer) (string, bool) {
		p.heard(a.Node)
		answers[a.Node] = a.attendance
		return a.Node, true
	})
	return answers, err
}

// askNodes asks all nodes. It waits for the answers of those that are there, up to
// presencePatience. take returns the node that an answer is from, and reports whether it is the
// node's last one.
func askNodes[A any](ctx context.Context, h *hub, subject, topic string,
	take func(A) (node string, last bool)) error {
	inbox := h.conn.NewInbox()
	sub, err := h.conn.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer sub.Unsubscribe()
	if err := h.conn.PublishRequest(subject, inbox, []byte(topic)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, presencePatience)
	defer cancel()
	for awaited := h.presence.living(); len(awaited) > 0; {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			break
		}
		var answer A
		if json.Unmarshal(m.Data, &answer) != nil {
			h.count.strange.Add(1)
			continue
		}
		if node, last := take(answer); last {
			delete(awaited, node)
		}
	}
	return nil
}

// refreshAll brings the rosters of this node up to date.
func (p *presence) refreshAll() {
	for _, f := range p.hub.all() {
		p.hub.mu.RLock()
		begun := p.hub.starting[f.sub.Subject] == nil // otherwise its first question is under way
		p.hub.mu.RUnlock()
		if begun && f.roster != nil && p.hub.ctx.Err() == nil {
			f.refresh(p.hub.ctx)
		}
	}
}

// A roster has the members of a topic. It is guarded by the mu of its feed.
type roster struct {
	of      string
	members map[string]attendee // by Client
	bytes   int
	// touched has those who have joined or left since the question under way was asked. The answers
	// may be older. It is nil if there is no question.
	touched map[string]bool
}

// add adds a member. It reports whether it was not there, and there was room.
func (r *roster) add(m attendee) bool {
	if _, known := r.members[m.Client]; known || r.full(m) {
		return false
	}
	r.members[m.Client] = m
	r.bytes += m.size()
	return true
}

func (r *roster) full(m attendee) bool {
	return len(r.members) >= maxMembers || r.bytes+m.size() > maxMemberBytes
}

// remove removes a member. It reports whether it was there.
func (r *roster) remove(client string) bool {
	m, known := r.members[client]
	if known {
		r.bytes -= m.size()
		delete(r.members, client)
	}
	return known
}

// attendance returns the members, in the order of their ids.
func (r *roster) attendance() attendance {
	a := attendance{Members: slices.AppendSeq(make([]attendee, 0, len(r.members)),
		maps.Values(r.members))}
	slices.SortFunc(a.Members, func(x, y attendee) int { return strings.Compare(x.Client, y.Client) })
	a.Full = len(r.members) >= maxMembers || r.bytes > maxMemberBytes-maxSubject
	return a
}

// move notes what an event of presence says. It reports whether that is news. The caller holds
// f.mu.
func (f *feed) move(data []byte) bool {
	var m movement
	if json.Unmarshal(data, &m) != nil || (m.Join == nil) == (m.Leave == nil) {
		f.hub.count.strange.Add(1)
		return false
	}
	r := f.roster
	switch {
	case m.Join != nil:
		r.touch(m.Join.Client)
		return r.add(*m.Join)
	default:
		r.touch(m.Leave.Client)
		return r.remove(m.Leave.Client)
	}
}

func (r *roster) touch(client string) {
	if r.touched != nil {
		r.touched[client] = true
	}
}

// refresh asks all nodes for the members of the feed's roster, and tells the feed's subscribers
// what has changed.
func (f *feed) refresh(ctx context.Context) error {
	r := f.roster
	f.mu.Lock()
	r.touched = make(map[string]bool)
	f.mu.Unlock()
	p := f.hub.presence
	answers, err := p.ask(ctx, r.of)
	living := p.living()
	f.mu.Lock()
	defer f.mu.Unlock()
	touched := r.touched
	r.touched = nil
	if err != nil {
		return err
	}
	said := make(map[string]bool)
	for _, a := range answers {
		for _, m := range a.Members {
			said[m.Client] = true
			if !touched[m.Client] && r.add(m) {
				f.dispatch(&event{topic: f.filter(), data: encode(movement{Join: &m})})
			}
		}
	}
	for client, m := range r.members {
		a, answered := answers[m.node()]
		gone := answered && !a.Full && !said[client] || !answered && !living[m.node()]
		if gone && !touched[client] {
			r.remove(client)
			f.dispatch(&event{topic: f.filter(), data: encode(movement{Leave: &m})})
		}
	}
	return nil
}

// welcome tells a new subscriber who is there. The caller holds f.mu.
func (f *feed) welcome(s *subscriber, topic int) {
	s.deliver(topic, &event{topic: f.filter(), data: encode(f.roster.attendance())})
}

var errNoPresence = errors.New("no presence")

// checkPresence reports what is wrong with a topic of presence.
func (g *Gateway) checkPresence(of string) error {
	if err := checkTopic(of, false); err != nil {
		return err
	}
	if !g.hub.presence.has(of) {
		return fmt.Errorf("topic %q: %w", of, errNoPresence)
	}
	return nil
}

// beginQuestion begins a request that asks about other clients. It has answered the request if it
// returns false. Otherwise done must be called. ctx ends with the request, with the gateway, and after
// requestTimeout.
func (g *Gateway) beginQuestion(w http.ResponseWriter, r *http.Request, grant *Grant) (
	ctx context.Context, done func(), ok bool) {
	if wait := g.subscribing.take(g.keyOf(grant.Subject, r.RemoteAddr)); wait > 0 {
		g.refuse(w, r, &denial{http.StatusTooManyRequests, errRate.Error(), wait})
		return nil, nil, false
	}
	if !g.enter() {
		g.unavailable(w, r, errDrain)
		return nil, nil, false
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	stop := context.AfterFunc(g.hub.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		g.opening.Done()
	}, true
}

// servePresence answers with the members of a topic.
func (g *Gateway) servePresence(w http.ResponseWriter, r *http.Request) {
	allowOrigin(w, r, g.config.Origins)
	of := r.URL.Query().Get("topic")
	if err := g.checkPresence(of); err != nil {
		g.reject(w, r, http.StatusBadRequest, err.Error())
		return
	}
	grant, ok := g.authorize(w, r)
	if !ok {
		return
	}
	if !allows(grant.Presence, of) {
		g.refuse(w, r, notAllowed(presencePrefix+of))
		return
	}
	ctx, done, ok := g.beginQuestion(w, r, &grant)
	if !ok {
		return
	}
	defer done()
	f, err := g.hub.acquire(ctx, presencePrefix+of)
	if err != nil {
		g.unavailable(w, r, err)
		return
	}
	defer g.hub.release(f)
	f.mu.Lock()
	a := f.roster.attendance()
	f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Write(append(encode(a), '\n'))
}
