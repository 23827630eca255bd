package park

import (
	"sync"
	"sync/atomic"
)

// A table finds spots by the numbers of their descriptors.
type table struct {
	mu    sync.Mutex // held to grow
	pages atomic.Pointer[[]*page]
	used  atomic.Int64
}

const pageSize = 512

type page [pageSize]atomic.Pointer[spot]

// at is the place of a number.
func (t *table) at(number uintptr) *atomic.Pointer[spot] {
	i := int(number / pageSize)
	if pages := t.pages.Load(); pages != nil && i < len(*pages) && (*pages)[i] != nil {
		return &(*pages)[i][number%pageSize]
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var old []*page
	if pages := t.pages.Load(); pages != nil {
		old = *pages
	}
	grown := make([]*page, max(len(old), i+1))
	copy(grown, old)
	if grown[i] == nil {
		grown[i] = new(page)
	}
	t.pages.Store(&grown)
	return &grown[i][number%pageSize]
}

// put puts a spot in the place of another, or of none.
func (t *table) put(place *atomic.Pointer[spot], old, s *spot) bool {
	if !place.CompareAndSwap(old, s) {
		return false
	}
	if old == nil {
		t.used.Add(1)
	}
	if s == nil {
		t.used.Add(-1)
	}
	return true
}

// all calls visit for every spot.
func (t *table) all(visit func(*spot)) {
	t.some(0, 1, func(_ *atomic.Pointer[spot], s *spot) { visit(s) })
}

// some calls visit for the spots of every n-th number from first on.
func (t *table) some(first, n int, visit func(*atomic.Pointer[spot], *spot)) {
	pages := t.pages.Load()
	if pages == nil {
		return
	}
	for i, p := range *pages {
		if p == nil {
			continue
		}
		for j := (first + n - i*pageSize%n) % n; j < pageSize; j += n {
			if s := p[j].Load(); s != nil {
				visit(&p[j], s)
			}
		}
	}
}
