package server

import (
	"net/netip"
	"time"

	"github.com/socknotify/socknotify/server/internal/conn"
	"github.com/socknotify/socknotify/server/internal/engine"
)

// A table holds all connections of a server.
type table []*conn.Conn

func (t *table) add(c *conn.Conn) {
	c.Index = uint32(len(*t))
	*t = append(*t, c)
}

// remove moves the last connection to the place of the one that ends.
func (t *table) remove(c *conn.Conn) {
	list := *t
	last := len(list) - 1
	list[c.Index] = list[last]
	list[c.Index].Index = c.Index
	list[last] = nil
	if *t = list[:last]; last == 0 {
		*t = nil
	}
}

// addrs counts the connections of each address, if there is a limit.
type addrs struct {
	n  map[netip.Addr]int
	of map[*conn.Conn]netip.Addr
}

func (a *addrs) enter(c *conn.Conn, addr netip.Addr) {
	if addr.IsValid() {
		a.n[addr]++
		a.of[c] = addr
	}
}

func (a *addrs) leave(c *conn.Conn) {
	addr, ok := a.of[c]
	if !ok {
		return
	}
	delete(a.of, c)
	if a.n[addr]--; a.n[addr] == 0 {
		delete(a.n, addr)
	}
}

// acceptRates has the buckets for new connections. They are used with the server's lock held, and
// with the system's clock, because that of the wheel stops while there are no connections.
type acceptRates struct {
	all    engine.Bucket
	of     map[netip.Addr]engine.Bucket
	sweeps int // the size of the map at which full buckets are removed
}

const leastSweep = 1024

// allow counts a new connection, or returns an error if it is one too many. from may be the zero
// Addr.
func (a *acceptRates) allow(all, each Rate, from netip.Addr, now time.Time) error {
	const per = int64(time.Second)
	at := now.UnixNano()
	var b engine.Bucket
	from = engine.Network(from)
	limited := engine.Limits(each) && from.IsValid()
	if limited {
		if b = a.of[from]; b.Available(each, at, per) < 1 {
			return conn.ErrAcceptRateAddr
		}
	}
	if engine.Limits(all) {
		if a.all.Available(all, at, per) < 1 {
			return conn.ErrAcceptRate
		}
		a.all.Take(1, per)
	}
	if limited {
		if b.Take(1, per); a.of == nil {
			a.of = make(map[netip.Addr]engine.Bucket)
		}
		a.of[from] = b
		if len(a.of) >= max(a.sweeps, leastSweep) {
			for k, b := range a.of {
				if b.Available(each, at, per) == engine.Burst(each) {
					delete(a.of, k)
				}
			}
			a.sweeps = 2 * len(a.of)
		}
	}
	return nil
}
