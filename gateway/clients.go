package gateway

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A clientSet has the clients of this node.
type clientSet struct {
	node string // the first part of their ids
	last atomic.Uint64

	mu     sync.Mutex
	all    []*subscriber
	recent []recentOrder // carried out in the last time, the oldest first
}

// A recentOrder is an order that was carried out. It is for the clients with ids up to one, also
// for those of them that join later.
type recentOrder struct {
	order
	upTo uint64
	at   time.Time
}

// keepOrders is how long an order is remembered: longer than a client needs to join.
const keepOrders = 2 * joinTimeout

// remember notes an order before it is carried out.
func (c *clientSet) remember(o order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.recent = slices.DeleteFunc(c.recent, func(r recentOrder) bool { return now.Sub(r.at) > keepOrders })
	c.recent = append(c.recent, recentOrder{o, c.last.Load(), now})
}

// missed returns the orders that were carried out while a client that has its topics now joined.
func (c *clientSet) missed(s *subscriber) (orders []order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.recent {
		if s.id != 0 && s.id <= r.upTo {
			orders = append(orders, r.order)
		}
	}
	return orders
}

// newID returns the number of a new client. It is not 0.
func (c *clientSet) newID() uint64 { return c.last.Add(1) }

// name returns the id of a client, which is not that of another one of any node.
func (c *clientSet) name(id uint64) string { return c.node + "-" + strconv.FormatUint(id, 10) }

// add adds a client, unless it has no id.
func (c *clientSet) add(s *subscriber) {
	if s.id == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, s)
	s.place = len(c.all)
}

// settle gives a client its topics, which each may read.
func (c *clientSet) settle(s *subscriber, topics []subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.topics = topics
}

// remove removes a client, if it was added. The last one takes its place.
func (c *clientSet) remove(s *subscriber) {
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

// each calls f for every client that is there all the time, and for some others. It goes backwards:
// a client that takes the place of another one comes from behind, and was visited already. f must
// not block, and must not add or remove clients.
func (c *clientSet) each(f func(*subscriber)) {
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
