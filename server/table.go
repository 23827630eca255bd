package server

import "net/netip"

// A table holds all connections of a server.
type table struct {
	chunks []*[chunk]*conn
	free   []uint32
	n      int // connections
	end    uint32
}

const chunk = 256

func (t *table) add(c *conn) {
	var i uint32
	if k := len(t.free); k > 0 {
		i, t.free = t.free[k-1], t.free[:k-1]
	} else {
		if i = t.end; i%chunk == 0 {
			t.chunks = append(t.chunks, new([chunk]*conn))
		}
		t.end++
	}
	c.index = i
	t.chunks[i/chunk][i%chunk] = c
	t.n++
}

func (t *table) remove(c *conn) {
	t.chunks[c.index/chunk][c.index%chunk] = nil
	t.free = append(t.free, c.index)
	if t.n--; t.n == 0 {
		*t = table{}
	}
}

// all returns all connections.
func (t *table) all() []*conn {
	list := make([]*conn, 0, t.n)
	for _, chunk := range t.chunks {
		for _, c := range chunk {
			if c != nil {
				list = append(list, c)
			}
		}
	}
	return list
}

// addrs counts the connections of each address, if there is a limit.
type addrs struct {
	n  map[netip.Addr]int
	of map[uint32]netip.Addr // by the connection's index
}

func (a *addrs) enter(index uint32, addr netip.Addr) {
	if addr.IsValid() {
		a.n[addr]++
		a.of[index] = addr
	}
}

func (a *addrs) leave(index uint32) {
	addr, ok := a.of[index]
	if !ok {
		return
	}
	delete(a.of, index)
	if a.n[addr]--; a.n[addr] == 0 {
		delete(a.n, addr)
	}
}
