package access

import (
	"cmp"
	"math"
	"net"
	"net/netip"
	"sync"
	"time"
)

// A Rate limits how often something may happen: PerSecond times on average, and Burst times at
// once. A Burst of 0 means PerSecond.
type Rate struct {
	PerSecond int
	Burst     int
}

// A limiter has a token bucket for each client, which is filled at a rate. It knows a client until
// its bucket is full again, and a client that it does not know has a full one. So a client that
// disconnects gains nothing, and there are at most as many clients as have come in the time in
// which a bucket is filled.
type limiter struct {
	every, span time.Duration // in which one token comes, and in which the bucket is filled
	now         func() time.Time

	mu    sync.Mutex
	full  map[string]time.Time // by client, when its bucket is full
	prune int                  // the size at which full buckets are dropped
}

// maxSpan bounds the time in which a bucket is filled: times that are later than now by so much can
// be compared.
const maxSpan = math.MaxInt64 / 4

// minPrune is the smallest size at which full buckets are dropped.
const minPrune = 1024

// newLimiter returns a limiter, or nil for a rate that is no limit.
func newLimiter(r Rate, now func() time.Time) *limiter {
	if r.PerSecond <= 0 {
		return nil
	}
	every := max(time.Second/time.Duration(r.PerSecond), 1)
	burst := min(time.Duration(cmp.Or(r.Burst, r.PerSecond)), maxSpan/every) // which is beyond any use
	return &limiter{every: every, span: every * burst, now: now,
		full: make(map[string]time.Time), prune: minPrune}
}

// Take takes a token of a client. If there is none, it returns the time until there is one.
func (l *limiter) Take(client string) time.Duration {
	if l == nil {
		return 0
	}
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.full[client]
	if full.Before(now) {
		full = now
	}
	if wait := full.Add(l.every).Sub(now) - l.span; wait > 0 {
		return wait
	}
	l.full[client] = full.Add(l.every)
	if len(l.full) >= l.prune {
		for c, full := range l.full {
			if !full.After(now) {
				delete(l.full, c)
			}
		}
		l.prune = max(2*len(l.full), minPrune)
	}
	return 0
}

// A tally counts the connections of each client.
type tally struct {
	mu  sync.Mutex
	all map[string]int    // by client
	of  map[uint64]string // the client of each connection, by its id
}

// add counts a connection of a client, unless there are most already. A limit of 0 or less is none, and
// counts nothing.
func (t *tally) add(id uint64, client string, most int) bool {
	if most <= 0 {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[client] >= most {
		return false
	}
	if t.all == nil {
		t.all, t.of = make(map[string]int), make(map[uint64]string)
	}
	t.all[client]++
	t.of[id] = client
	return true
}

// remove undoes add, if that has counted the connection.
func (t *tally) remove(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	client, counted := t.of[id]
	if !counted {
		return
	}
	delete(t.of, id)
	if t.all[client]--; t.all[client] == 0 {
		delete(t.all, client)
	}
}

// KeyOf is clientKey, or nothing if there is no limit.
func (c *Control) KeyOf(subject, remote string) string {
	if c.Publishing == nil && c.subscribing == nil && c.Messages == nil && c.Config.MaxConnsPerUser <= 0 {
		return ""
	}
	return clientKey(subject, remote)
}

// clientKey names a client for the limits: by the subject of its token, or else by its address. Of
// IPv6 that is the network of 64 bits, in which a client may choose its address.
func clientKey(subject, remote string) string {
	if subject != "" {
		return "subject " + subject
	}
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() {
		network, _ := ip.Prefix(64) // 64 is a valid length
		return network.String()
	}
	return ip.String()
}
