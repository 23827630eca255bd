package psn

import "math/bits"

// A table has the entries, by handle and by key. They never move.
//
// The low bits of a key are the entry's place, the high bits a generation, which is never 0. With 64 bits a
// key does not recur. With 32 bits it could recur after 4095 registrations in one place, so the place that
// has been free for longest is used first.
type table struct {
	pages []*[entryPage]entry
	taken uint32                // the number of places used so far
	first uint32                // place + 1 of the first free entry; each links to the next by its token
	last  uint32                // place + 1 of the last free entry
	index []*[handlePage]uint32 // by handle: place + 1
}

const (
	entryPage  = 64
	handlePage = 1024

	placeBits = 8 + 12*(bits.UintSize/32) // 20, or 32
	places    = 1<<placeBits - 1

	// handles exceeds the socket handles of every system.
	handles = 1 << 26
)

func (t *table) place(i uint32) *entry { return &t.pages[i/entryPage][i%entryPage] }

// byHandle returns the watched entry of a handle, or nil.
func (t *table) byHandle(handle uintptr) *entry {
	page := handle / handlePage
	if page >= uintptr(len(t.index)) || t.index[page] == nil {
		return nil
	}
	if i := t.index[page][handle%handlePage]; i != 0 {
		return t.place(i - 1)
	}
	return nil
}

// byKey returns the entry of a key, or nil.
func (t *table) byKey(key uintptr) *entry {
	i := uint64(key) & places
	if i >= uint64(t.taken) {
		return nil
	}
	if e := t.place(uint32(i)); e.key == key && e.state != free {
		return e
	}
	return nil
}

// create returns a new entry with a new key, or nil if the table is full.
func (t *table) create(handle uintptr) *entry {
	if handle >= handles {
		return nil
	}
	i := t.first - 1
	switch {
	case t.first != 0:
		if t.first = uint32(t.place(i).token); t.first == 0 {
			t.last = 0
		}
	case t.taken == places:
		return nil
	default:
		if i = t.taken; i%entryPage == 0 {
			t.pages = append(t.pages, new([entryPage]entry))
		}
		t.taken++
	}
	e := t.place(i)
	generation := e.key>>placeBits + 1
	if generation<<placeBits == 0 {
		generation = 1
	}
	*e = entry{handle: handle, key: generation<<placeBits | uintptr(i), state: watched}
	t.set(handle, i+1)
	return e
}

func (t *table) set(handle uintptr, i uint32) {
	page := int(handle / handlePage)
	for page >= len(t.index) {
		t.index = append(t.index, nil)
	}
	if t.index[page] == nil {
		t.index[page] = new([handlePage]uint32)
	}
	t.index[page][handle%handlePage] = i
}

// leave makes an entry's handle free for another entry. The key remains known.
func (t *table) leave(e *entry) {
	if t.byHandle(e.handle) == e {
		t.set(e.handle, 0)
	}
}

// drop forgets an entry.
func (t *table) drop(e *entry) {
	if e.state == free {
		return
	}
	t.leave(e)
	i := uint32(uint64(e.key)&places) + 1
	e.state, e.token = free, 0
	if t.last == 0 {
		t.first = i
	} else {
		t.place(t.last - 1).token = uint64(i)
	}
	t.last = i
}

// each calls f for every watched entry. f may drop it.
func (t *table) each(f func(*entry)) {
	for i := range t.taken {
		if e := t.place(i); e.state == watched {
			f(e)
		}
	}
}
