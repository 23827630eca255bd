package kqueue

import "github.com/socknotify/socknotify/internal/kernel/backend"

// A table has the state of each watched number.
type table struct {
	entries []entry
	round   uint64 // the current harvest
}

type entry struct {
	token    uint64
	interest backend.Mask
	watched  bool
	writing  bool // the writing knote is enabled

	// ends is the set of knotes that have reported an end since the latest change.
	ends uint8

	// at is the position of the report in the harvest of the round, or none.
	round uint64
	at    int32
}

// get returns the entry of a watched number, or nil.
func (t *table) get(fd int) *entry {
	if fd < 0 || fd >= len(t.entries) || !t.entries[fd].watched {
		return nil
	}
	return &t.entries[fd]
}

// made records a change that the kernel has made.
func (t *table) made(action backend.Action, fd int, token uint64, interest backend.Mask) {
	switch action {
	case backend.Add:
		if fd >= len(t.entries) {
			t.entries = append(t.entries, make([]entry, max(fd+1, 2*len(t.entries), 64)-len(t.entries))...)
		}
		t.entries[fd] = entry{token: token, interest: interest, watched: true, writing: interest&backend.Out != 0}
	case backend.Set:
		e := &t.entries[fd]
		e.token, e.interest, e.writing, e.ends = token, interest, interest&backend.Out != 0, 0
	case backend.Suppress:
		e := &t.entries[fd]
		e.token, e.interest, e.writing, e.ends = token, 0, false, 0
	case backend.Delete:
		t.forget(fd)
	}
}

// forget drops a number that is no longer watched.
func (t *table) forget(fd int) {
	if e := t.get(fd); e != nil {
		*e = entry{}
	}
}
