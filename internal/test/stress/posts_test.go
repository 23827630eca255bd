package stress

import (
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/long"
)

var postsFlag = flag.Int("stress.posts", 0, "posts of TestPosts; 0 is a million, or less with the race detector")

const posters = 8

// TestPosts makes posts from eight goroutines to one waiter and to several: each arrives exactly once,
// and each waiter sees each poster's in order (Q1).
func TestPosts(t *testing.T) {
	total := *postsFlag
	if total == 0 {
		total = long.Or(defaultPosts, 50_000)
	}
	for _, backend := range backendtest.Names(t) {
		for _, waiters := range []int{1, 2, 8, 16} {
			t.Run(fmt.Sprintf("%s/waiters=%d", backend, waiters), func(t *testing.T) {
				testPosts(t, backend, waiters, total/posters)
			})
		}
	}
}

func testPosts(t *testing.T, backend string, waiters, each int) {
	port, err := socknotify.New[int](backendtest.With(backend))
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	got := make([][]atomic.Bool, posters)
	for i := range got {
		got[i] = make([]atomic.Bool, each)
	}
	var left atomic.Int64
	left.Store(int64(posters * each))
	done := make(chan struct{})
	var group sync.WaitGroup
	for i := range waiters {
		group.Add(1)
		go func() {
			defer group.Done()
			entries := make([]socknotify.Notification[int], 1+i*5)
			last := [posters]int{-1, -1, -1, -1, -1, -1, -1, -1}
			for {
				n, err := port.Process(nil, entries, -1)
				if err != nil {
					return // closed
				}
				for _, e := range entries[:n] {
					seq := int(e.Data)
					switch {
					case e.Kind() != socknotify.KindPosted || e.Events != 0 || e.Key < 0 || e.Key >= posters || seq >= each:
						t.Errorf("came %+v", e)
					case seq <= last[e.Key]:
						t.Errorf("poster %d: %d came after %d", e.Key, seq, last[e.Key])
					case waiters == 1 && seq != last[e.Key]+1:
						t.Errorf("poster %d: %d came after %d, one is missing", e.Key, seq, last[e.Key])
					case got[e.Key][seq].Swap(true):
						t.Errorf("poster %d: %d came twice", e.Key, seq)
					default:
						last[e.Key] = seq
						if left.Add(-1) == 0 {
							close(done)
						}
					}
				}
			}
		}()
	}
	for p := range posters {
		group.Add(1)
		go func() {
			defer group.Done()
			for seq := range each {
				if err := port.Post(p, uintptr(seq)); err != nil {
					t.Errorf("Post: %v", err)
					return
				}
				if seq%1000 == 999 {
					await.Pause(10 * time.Microsecond) // let the waiters fall asleep now and then
				}
			}
		}()
	}
	for before := left.Load(); ; before = left.Load() {
		select {
		case <-done:
		case <-time.After(patience): // posting makes progress at any speed, but must not stand still
			if left.Load() != before {
				continue
			}
			t.Errorf("%d posts have not come; %+v", left.Load(), port.Stats())
		}
		break
	}
	port.Close()
	group.Wait()
}
