package hub

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// A clientSet has the clients of this node.
type clientSet struct {
	Node string // the first part of their ids
	Last atomic.Uint64

	mu  sync.Mutex
	all []*Subscriber
}

// NewID returns the number of a new client. It is not 0.
func (c *clientSet) NewID() uint64 { return c.Last.Add(1) }

// Name returns the id of a client, which is not that of another one of any node.
func (c *clientSet) Name(id uint64) string { return c.Node + "-" + strconv.FormatUint(id, 10) }

// NameOf returns the id of the connection that a client has.
func (c *clientSet) NameOf(s *Subscriber) string {
	if b, ok := s.To.(branch); ok {
		s = b.Root()
	}
	return c.Name(s.ID)
}

// Find returns the client with an id, or nil if it is not connected to this node.
func (c *clientSet) Find(name string) (found *Subscriber) {
	id, ok := strings.CutPrefix(name, c.Node+"-")
	n, err := strconv.ParseUint(id, 10, 64)
	if !ok || err != nil {
		return nil
	}
	c.Each(func(s *Subscriber) {
		if s.ID == n {
			found = s
		}
	})
	return found
}

// Has reports whether a client is connected.
func (c *clientSet) Has(s *Subscriber) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.place != 0
}

// add adds a client, unless it has no id.
func (c *clientSet) add(s *Subscriber) {
	if s.ID == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, s)
	s.place = len(c.all)
}

// settle gives a client its topics, which each may read.
func (c *clientSet) settle(s *Subscriber, topics []subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Topics = topics
}

// remove removes a client, if it was added. The last one takes its place.
func (c *clientSet) remove(s *Subscriber) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.place == 0 {
		return
	}
	end := len(c.all) - 1
	last := c.all[end]
	c.all[s.place-1], last.place = last, s.place
	c.all[end] = nil
	c.all = c.all[:end]
	s.place = 0
}

// eachRun is the number of clients for which each holds the lock.
const eachRun = 256

// Each calls f for every client that is there all the time, and for some others. It goes backwards:
// a client that takes the place of another one comes from behind, and was visited already. f must
// not block, and must not add or remove clients.
func (c *clientSet) Each(f func(*Subscriber)) {
	c.mu.Lock()
	for i := len(c.all); i > 0; {
		for range eachRun {
			if i = min(i, len(c.all)); i == 0 {
				break
			}
			i--
			f(c.all[i])
		}
		c.mu.Unlock()
		c.mu.Lock()
	}
	c.mu.Unlock()
}
