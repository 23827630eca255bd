package psn

import (
	"runtime"
	"testing"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

func TestKeysAreNotReused(t *testing.T) {
	var tab table
	seen := make(map[uintptr]bool)
	for i := range uintptr(3 * entryPage) {
		seen[tab.create(4*i).key] = true
	}
	for i := range 1000 {
		handle := uintptr(i*7%(3*entryPage)) * 4
		old := tab.byHandle(handle)
		key := old.key
		if tab.byKey(key) != old {
			t.Fatalf("key %#x is not known", key)
		}
		tab.leave(old)
		if tab.byHandle(handle) != nil || tab.byKey(key) != old {
			t.Fatalf("having left, handle %d or key %#x is wrong", handle, key)
		}
		tab.drop(old)
		tab.drop(old)
		if tab.byKey(key) != nil {
			t.Fatalf("key %#x is known after drop", key)
		}
		e := tab.create(handle)
		if seen[e.key] {
			t.Fatalf("key %#x was used twice", e.key)
		}
		seen[e.key] = true
		if tab.byHandle(handle) != e || tab.byKey(e.key) != e || e.key == wakeKey || e.key == noKey {
			t.Fatalf("entry %+v cannot be found", e)
		}
	}
	n := 0
	tab.each(func(e *entry) { n++; tab.drop(e) })
	if n != 3*entryPage || tab.taken != 3*entryPage {
		t.Fatalf("%d entries in %d places", n, tab.taken)
	}
}

func TestTableBounds(t *testing.T) {
	var tab table
	for _, handle := range []uintptr{handles, ^uintptr(0)} {
		if tab.create(handle) != nil || tab.byHandle(handle) != nil {
			t.Fatalf("handle %#x has an entry", handle)
		}
	}
	for _, key := range []uintptr{wakeKey, noKey, ^uintptr(0), 5} {
		if tab.byKey(key) != nil {
			t.Fatalf("key %#x has an entry", key)
		}
	}
}

// silent is a system that accepts any registration and never queues a packet.
func silent() *System {
	return &System{
		Process: func(_ uintptr, regs []Registration, _ uint32, entries []Entry) (int, uint32) {
			for i := range regs {
				regs[i].Result = success
				if regs[i].Op != opEnable {
					regs[i].Result = 1168
				}
			}
			if len(entries) > 0 {
				return 0, waitTimeout
			}
			return 0, success
		},
		OpenPort:  func() (uintptr, error) { return 1, nil },
		ClosePort: func(uintptr) error { return nil },
	}
}

// An idle registration may cost 128 bytes, of which the layer above takes 61.
func TestMemory(t *testing.T) {
	const n = 20000
	k, err := NewOn(silent())
	if err != nil {
		t.Fatal(err)
	}
	before := liveBytes()
	for i := range uintptr(n) {
		c := []backend.Change{{Handle: 4 * i, Action: backend.Add}}
		if k.Poll(c, nil); c[0].Status != backend.Done {
			t.Fatalf("status %d", c[0].Status)
		}
	}
	each := float64(liveBytes()-before) / n
	t.Logf("%.1f bytes each", each)
	if each > 64 {
		t.Errorf("a registration takes %.1f bytes; want at most 64", each)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
}

func liveBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
