package port

import (
	"sync"
	"sync/atomic"
)

// pages are what there is for each index, in pieces that never move, so that looking needs no lock. The zero value
// has none.
type pages[P any] struct {
	list atomic.Pointer[[]atomic.Pointer[P]]
	mu   sync.Mutex // held to add one
}

// lookup returns a page, or nil.
func (t *pages[P]) lookup(at int) *P {
	if list := t.list.Load(); list != nil && at < len(*list) {
		return (*list)[at].Load()
	}
	return nil
}

// make returns a page that may have to be made.
func (t *pages[P]) make(at int) *P {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []atomic.Pointer[P]
	if l := t.list.Load(); l != nil {
		list = *l
	}
	if at >= len(list) {
		// Twice as many, or a table that grows page by page is copied as often.
		grown := make([]atomic.Pointer[P], max(2*len(list), at+1))
		for i := range list {
			grown[i].Store(list[i].Load())
		}
		list = grown
		t.list.Store(&grown)
	}
	if list[at].Load() == nil {
		list[at].Store(new(P))
	}
	return list[at].Load()
}

// all returns what there is of pages; some are nil.
func (t *pages[P]) all() []atomic.Pointer[P] {
	if list := t.list.Load(); list != nil {
		return *list
	}
	return nil
}

// drop lets go of all. Nobody may be using them.
func (t *pages[P]) drop() { t.list.Store(nil) }
