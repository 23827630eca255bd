package parking

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/socknotify/socknotify/internal/sparse"
)

// A table maps descriptor numbers to parked connections. Lookups take no lock.
type table struct {
	mu    sync.Mutex // held while a connection is added
	pages sparse.Pages[page]
	used  atomic.Int64 // entries that are not nil
}

const pageSize = 512

type page [pageSize]atomic.Pointer[parkedConn]

// at returns the entry for a descriptor number.
func (t *table) at(number uintptr) *atomic.Pointer[parkedConn] {
	return &t.pages.At(int(number / pageSize))[number%pageSize]
}

// of returns the record of the connection base from its entry, or nil. It loads the entry again under the lock: parkNew
// adds a connection under the lock, and the function of that connection may be running before parkNew has returned.
func (t *table) of(entry *atomic.Pointer[parkedConn], base syscall.Conn) *parkedConn {
	if pc := entry.Load(); pc != nil && pc.base == base {
		return pc
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if pc := entry.Load(); pc != nil && pc.base == base {
		return pc
	}
	return nil
}

// put replaces old, which may be nil, with pc, which may be nil. It reports whether the entry still held old.
func (t *table) put(entry *atomic.Pointer[parkedConn], old, pc *parkedConn) bool {
	if !entry.CompareAndSwap(old, pc) {
		return false
	}
	if old == nil {
		t.used.Add(1)
	}
	if pc == nil {
		t.used.Add(-1)
	}
	return true
}

// all calls visit for every connection in the table.
func (t *table) all(visit func(*parkedConn)) {
	t.some(0, 1, func(_ *atomic.Pointer[parkedConn], _ uintptr, pc *parkedConn) { visit(pc) })
}

// some calls visit for the connections with the descriptor numbers first, first+n, first+2n and so on.
func (t *table) some(first, n int, visit func(entry *atomic.Pointer[parkedConn], number uintptr, pc *parkedConn)) {
	pages := t.pages.All()
	for i := range pages {
		p := pages[i].Load()
		if p == nil {
			continue
		}
		for j := (first + n - i*pageSize%n) % n; j < pageSize; j += n {
			if pc := p[j].Load(); pc != nil {
				visit(&p[j], uintptr(i*pageSize+j), pc)
			}
		}
	}
}
