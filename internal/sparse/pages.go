// Package sparse has arrays by index of which only some pages exist.
package sparse

import (
	"sync"
	"sync/atomic"
)

// Pages is an array that grows in pages which never move, so that reading needs no lock. The zero
// value is empty.
type Pages[P any] struct {
	list atomic.Pointer[[]atomic.Pointer[P]]
	mu   sync.Mutex // held while a page is added
}

// Lookup returns a page, or nil.
func (t *Pages[P]) Lookup(at int) *P {
	if list := t.list.Load(); list != nil && at < len(*list) {
		return (*list)[at].Load()
	}
	return nil
}

// At returns a page, and makes it if there is none.
func (t *Pages[P]) At(at int) *P {
	if page := t.Lookup(at); page != nil {
		return page
	}
	return t.grow(at)
}

func (t *Pages[P]) grow(at int) *P {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []atomic.Pointer[P]
	if l := t.list.Load(); l != nil {
		list = *l
	}
	if at >= len(list) {
		// Doubling, because a list that grew by one page at a time would be copied each time.
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

// All returns the list of pages; some are nil.
func (t *Pages[P]) All() []atomic.Pointer[P] {
	if list := t.list.Load(); list != nil {
		return *list
	}
	return nil
}

// Drop drops all pages. No call may be using them.
func (t *Pages[P]) Drop() { t.list.Store(nil) }
