package server

import "net/netip"

// A table holds all connections of a server.
type table []*conn

func (t *table) add(c *conn) {
	c.index = uint32(len(*t))
	*t = append(*t, c)
}

// remove moves the last connection to the place of the one that ends.
func (t *table) remove(c *conn) {
	list := *t
	last := len(list) - 1
	list[c.index] = list[last]
	list[c.index].index = c.index
	list[last] = nil
	if *t = list[:last]; last == 0 {
		*t = nil
	}
}

// addrs counts the connections of each address, if there is a limit.
type addrs struct {
	n  map[netip.Addr]int
	of map[*conn]netip.Addr
}

func (a *addrs) enter(c *conn, addr netip.Addr) {
	if addr.IsValid() {
		a.n[addr]++
		a.of[c] = addr
	}
}

func (a *addrs) leave(c *conn) {
	addr, ok := a.of[c]
	if !ok {
		return
	}
	delete(a.of, c)
	if a.n[addr]--; a.n[addr] == 0 {
		delete(a.n, addr)
	}
}
