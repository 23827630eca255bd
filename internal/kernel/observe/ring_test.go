package observe

import (
	"sync"
	"testing"

	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
)

// Many goroutines write, and one reads the entries that are not written over: every entry is whole, and the entries of
// each writer are in order.
func TestTraceOfManyWriters(t *testing.T) {
	const writers, each = 4, 3 * ringSize
	o := &recorder{}
	r := new(ring)
	o.ring.Store(r)
	var wg sync.WaitGroup
	for w := range uint32(writers) {
		wg.Go(func() {
			for i := range uint64(each) {
				o.trace(1, traceNotified, w, i, port.EventIn, uintptr(i)^uintptr(w))
			}
		})
	}
	tr := &TraceReader{ring: r}
	var last [writers]uint64
	read := uint64(0)
	readAll := func() {
		for {
			e, ok := tr.Read()
			if !ok {
				return
			}
			if e.Data != uintptr(e.ID)^e.Handle || e.Kind != traceNotified || e.Events != port.EventIn || e.At != 1 {
				t.Fatalf("torn: %+v", e)
			}
			if e.ID < last[e.Handle] {
				t.Fatalf("writer %d: %d after %d", e.Handle, e.ID, last[e.Handle])
			}
			last[e.Handle] = e.ID
			read++
		}
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for writing := true; writing; {
		select {
		case <-done:
			writing = false
		default:
			readAll()
		}
	}
	await.Until(t, "all is read", func() bool {
		readAll()
		return tr.next == r.head.Load()
	})
	if read+tr.Lost != writers*each || read == 0 {
		t.Errorf("%d read, %d lost, of %d", read, tr.Lost, writers*each)
	}
}

// The reader skips an entry that its writer gave up.
func TestTraceGivenUp(t *testing.T) {
	r := new(ring)
	r.add(1<<16, 1, 1, 0)
	r.head.Add(1) // begun, and never written
	r.add(1<<16, 3, 3, 0)
	tr := &TraceReader{ring: r}
	if e, ok := tr.Read(); !ok || e.Handle != 1 {
		t.Fatal(e, ok)
	}
	if e, ok := tr.Read(); ok {
		t.Fatal(e)
	}
	tr.stuck = tr.stuck.Add(-givenUp)
	if e, ok := tr.Read(); !ok || e.Handle != 3 || tr.Lost != 1 {
		t.Fatal(e, ok, tr.Lost)
	}
	if e, ok := tr.Read(); ok || !tr.stuck.IsZero() {
		t.Fatal(e, ok)
	}
}
