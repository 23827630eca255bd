package socknotify

import (
	"sync"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/socknotify/socknotify/internal/kernel/port"
)

// A queue is a list, whatever is pushed and taken in whatever portions.
func TestQueueIsAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue[int]
		var list []Notification[int]
		closed := false
		next, posts := 0, uint64(0)
		var here port.Core
		out := make([]Notification[int], 300)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 3*segmentSize).Draw(t, "n") {
					n := Notification[int]{Key: next, kind: port.Posted}
					switch next % 4 {
					case 0:
						n.kind = port.FromSocket
					case 1:
						o := new(port.Flight)
						o.Begin(&here)
						n.kind, n.of = port.Completion, unsafe.Pointer(o)
					}
					if next++; q.push(n) == closed {
						t.Fatal("closed is open, or open closed")
					}
					if !closed {
						list = append(list, n)
						if n.kind == port.Posted {
							posts++
						}
					}
				}
			},
			"take": func(t *rapid.T) {
				room := rapid.IntRange(0, len(out)).Draw(t, "room")
				n, posts, completed := q.take(out[:room])
				if n != min(room, len(list)) {
					t.Fatalf("%d of %d into %d", n, len(list), room)
				}
				for i := range n {
					if out[i] != list[i] {
						t.Fatalf("%v instead of %v", out[i], list[i])
					}
					if list[i].kind == port.Posted {
						posts--
					}
					if list[i].kind == port.Completion {
						completed--
						if (*port.Flight)(list[i].of).On(&here) {
							t.Fatal("an operation is in flight that was dequeued")
						}
					}
				}
				if posts != 0 || completed != 0 {
					t.Fatalf("%d posts and %d completions too many", posts, completed)
				}
				list = list[n:]
			},
			"close": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
					q.close()
					closed, list = true, nil
				}
			},
			"": func(t *rapid.T) {
				if q.size() != int64(len(list)) || q.any() != (len(list) > 0) || q.posted() != posts {
					t.Fatalf("size %d, any %v, posted %d; %d, %d", q.size(), q.any(), q.posted(), len(list), posts)
				}
			},
		})
	})
}

// What several queue at once and several take at once comes out once each, each producer's in order.
func TestQueueOfMany(t *testing.T) {
	const producers, each, takers = 4, 20_000, 3
	var q queue[int]
	var in, out sync.WaitGroup
	done := make(chan struct{})
	var mu sync.Mutex
	seen := make(map[int]int)
	for p := range producers {
		in.Go(func() {
			for i := range each {
				q.push(Notification[int]{Key: p, Data: uintptr(i), kind: port.Posted})
			}
		})
	}
	for i := range takers {
		out.Go(func() {
			buf := make([]Notification[int], 1+50*i)
			last := make(map[int]int)
			for {
				n, _, _ := q.take(buf)
				for _, e := range buf[:n] {
					if at, ok := last[e.Key]; ok && int(e.Data) <= at {
						t.Errorf("%d of %d after %d", e.Data, e.Key, at)
					}
					last[e.Key] = int(e.Data)
				}
				mu.Lock()
				for _, e := range buf[:n] {
					seen[e.Key]++
				}
				mu.Unlock()
				select {
				case <-done:
					if !q.any() {
						return
					}
				default:
				}
			}
		})
	}
	in.Wait()
	close(done)
	out.Wait()
	for p := range producers {
		if seen[p] != each {
			t.Errorf("%d of %d's", seen[p], p)
		}
	}
}

// The memory of a burst is kept for the next one, and given back when there is none for long; what was
// taken is not held on to.
func TestQueueMemory(t *testing.T) {
	var q queue[*int]
	burst := func(n int) {
		for range n {
			q.push(Notification[*int]{Key: new(int), kind: port.Posted})
		}
		out := make([]Notification[*int], 100)
		for q.any() {
			q.take(out)
		}
	}
	const large = 100 * segmentSize
	burst(large)
	kept := q.free.count
	if kept < large/segmentSize-1 {
		t.Errorf("%d segments kept after a burst", kept)
	}
	burst(large)
	if q.free.count > kept+1 {
		t.Errorf("%d segments, then %d", kept, q.free.count)
	}
	for range 2000 * segmentSize {
		burst(1)
	}
	if q.free.count > 3 {
		t.Errorf("%d segments kept for nothing", q.free.count)
	}
	for s := q.out.seg; s != nil; s = s.next {
		for i := range s.entries {
			if s.entries[i].Key != nil {
				t.Fatal("a key is kept")
			}
		}
	}
}

// Queueing and dequeuing each touch one cache line of the port; so does waiting (internal/kernel/port). The
// port may begin eight bytes into a line, which is what an allocation's header takes.
func TestLocksLieInOneLine(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("the layout is for 64 bits")
	}
	const line = 64
	var p Port[string]
	queue := unsafe.Offsetof(p.keys) + unsafe.Offsetof(p.keys.queue)
	for name, at := range map[string][2]uintptr{
		"in":  {queue + unsafe.Offsetof(p.keys.queue.in), unsafe.Offsetof(p.keys.queue.in.returned)},
		"out": {queue + unsafe.Offsetof(p.keys.queue.out), unsafe.Offsetof(p.keys.queue.out.returned)},
	} {
		for _, header := range []uintptr{0, 8} {
			if first := at[0] + header; first/line != (first+at[1])/line {
				t.Errorf("%s: bytes %d to %d", name, first, first+at[1])
			}
		}
	}
}
