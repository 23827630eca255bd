//go:build unix

package stress

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/internal/test/long"
)

var (
	pairsFlag    = flag.Int("stress.pairs", 0, "connections; 0 is 200, or 50 with -short")
	durationFlag = flag.Duration("stress.duration", 0, "how long work is created; 0 is 2 s, or 0.2 s with -short")
	workersFlag  = flag.Int("stress.workers", 16, "goroutines that dequeue")
	seedFlag     = flag.Uint64("stress.seed", 0, "what the workers draw; 0 draws a seed")
)

// A stressTest is one run.
type stressTest struct {
	port *socknotify.Port[*context]
	hub  *hub
	seed uint64
	ids  atomic.Uint64

	stopping atomic.Bool
	broken   atomic.Bool

	bytes, notified   atomic.Uint64
	removals, removed atomic.Int64 // OpRemoves, EventRemoves
	posted, postsGot  atomic.Int64

	mu    sync.Mutex
	why   string
	pairs []*pair
	index map[*pair]int
	kept  []int
}

func (s *stressTest) failed() bool { return s.broken.Load() }

// fail notes the first failure and closes the port, which ends the workers.
func (s *stressTest) fail(format string, args ...any) outcome {
	why := fmt.Sprintf(format, args...)
	s.mu.Lock()
	first := s.why == ""
	if first {
		s.why = why
	}
	s.mu.Unlock()
	s.broken.Store(true)
	if first {
		go s.port.Close()
	}
	return wrong
}

func (s *stressTest) enlist(p *pair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index[p] = len(s.pairs)
	s.pairs = append(s.pairs, p)
}

func (s *stressTest) delist(p *pair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, last := s.index[p], len(s.pairs)-1
	s.pairs[at] = s.pairs[last]
	s.index[s.pairs[at]] = at
	s.pairs = s.pairs[:last]
	delete(s.index, p)
}

// live is a copy of the pairs that are not closed.
func (s *stressTest) live() []*pair {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*pair(nil), s.pairs...)
}

func (s *stressTest) pick(rng *rand.Rand) *pair {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pairs) == 0 {
		return nil
	}
	return s.pairs[rng.IntN(len(s.pairs))]
}

func (s *stressTest) post(data uintptr) {
	if err := s.port.Post(nil, data); err != nil && !s.failed() {
		s.fail("Post: %v", err)
	}
}

func TestStress(t *testing.T) {
	if *pairsFlag == 0 {
		*pairsFlag = long.Or(200, 50)
	}
	if *durationFlag == 0 {
		*durationFlag = long.Or(2*time.Second, 200*time.Millisecond)
	}
	for _, backend := range backendtest.Names(t) {
		t.Run(backend, func(t *testing.T) { testStress(t, backend) })
	}
}

func testStress(t *testing.T, backend string) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	needDescriptors(t, *pairsFlag)
	settleDescriptors(t, backend)
	before := len(handles.List())
	port, err := socknotify.New[*context](backendtest.With(backend))
	if err != nil {
		t.Fatal(err)
	}
	s := &stressTest{port: port, seed: seed, index: make(map[*pair]int)}
	if s.hub, err = newHub(); err != nil {
		t.Fatal(err)
	}
	s.run()
	t.Logf("seed %d: %d notifications, %d bytes, %d removals, %d posts, %d connections; %+v", seed, s.notified.Load(),
		s.bytes.Load(), s.removed.Load(), s.postsGot.Load(), s.ids.Load()/2, port.Stats())
	if err := port.Close(); err != nil {
		s.fail("Close: %v", err)
	}
	for _, p := range s.live() {
		for _, e := range p.ends {
			if e.fd >= 0 {
				e.abort(true)
				s.close(e, false)
			}
		}
	}
	s.dropKept()
	unix.Close(s.hub.fd)
	if s.why != "" {
		t.Fatalf("seed %d: %s", seed, s.why)
	}
	await.Until(t, fmt.Sprintf("seed %d: %d descriptors, as before", seed, before), func() bool {
		return len(handles.List()) == before
	})
}

func (s *stressTest) newWorker(n int) *worker {
	return &worker{s: s, rng: rand.New(rand.NewPCG(s.seed, uint64(n))), buf: make([]byte, 8<<10)}
}

// run is the whole life of a stress test.
func (s *stressTest) run() {
	first := s.newWorker(0)
	for range *pairsFlag {
		p, err := s.newPair(first.rng)
		if err != nil {
			s.fail("%v", err)
			return
		}
		for _, e := range p.ends {
			s.reply(e, first.buf, first.rng)
		}
		first.add(p.ends[0].enable(false), nil)
		first.add(p.ends[1].enable(false), nil)
	}
	first.process(nil, 0)
	var workers sync.WaitGroup
	for i := range *workersFlag {
		w := s.newWorker(1 + i)
		workers.Add(1)
		go func() {
			defer workers.Done()
			w.run()
		}()
	}
	s.kick(s.newWorker(1 + *workersFlag))
	s.stopping.Store(true)
	s.dropKept()
	s.quiesce()
	for range *workersFlag {
		s.post(exitPost)
	}
	workers.Wait()
	if !s.failed() {
		s.removeAll()
	}
}

// kick sends on any connection, as the rest of a program would, so that none falls silent for good, and
// posts now and then.
func (s *stressTest) kick(w *worker) {
	for end := time.Now().Add(*durationFlag); time.Now().Before(end) && !s.failed(); await.Pause(200 * time.Microsecond) {
		for range 16 {
			p := s.pick(w.rng)
			if p == nil {
				continue
			}
			e := p.ends[w.rng.IntN(2)]
			// An owner that waits for room has vouched for the direction.
			if e.mu.TryLock() {
				if !e.blocked {
					e.send(1+w.rng.IntN(1024), w.buf, w.rng.IntN(16) == 0)
				}
				e.mu.Unlock()
			}
		}
		s.posted.Add(1)
		s.post(uintptr(s.posted.Load()))
	}
}

// needDescriptors skips the test where the process may not have as many descriptors as so many pairs take. The Go
// runtime has raised the limit as far as it goes.
func needDescriptors(t *testing.T, pairs int) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	if need := uint64(2*pairs + 256); uint64(l.Cur) < need {
		t.Skipf("%d descriptors are needed, %d allowed", need, l.Cur)
	}
}

// settleDescriptors makes the runtime open what it opens once.
func settleDescriptors(t *testing.T, backend string) {
	p, err := socknotify.New[int](backendtest.With(backend))
	if err != nil {
		t.Fatal(err)
	}
	var out [1]socknotify.Notification[int]
	_, _ = p.Process(nil, out[:], time.Millisecond)
	p.Close()
}
