//go:build unix

package stress

import (
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/sockettest"
)

// quiesce waits until everything that was sent has arrived. It fails when nothing moves any more
// though something should: a wake-up was lost.
func (s *stressTest) quiesce() {
	moved, since := uint64(0), time.Now()
	for !s.failed() {
		stuck := s.stuck()
		if stuck == "" {
			return
		}
		if now := s.notified.Load() + uint64(s.removed.Load()) + uint64(s.postsGot.Load()); now != moved {
			moved, since = now, time.Now()
		}
		if time.Since(since) > patience {
			s.fail("lost wake-up: %s; %+v", stuck, s.port.Stats())
			return
		}
		await.Pause(5 * time.Millisecond)
	}
}

// stuck names something that has yet to happen.
func (s *stressTest) stuck() string {
	for _, p := range s.live() {
		for _, e := range p.ends {
			if e.gone.Load() {
				continue
			}
			e.other.mu.Lock()
			sent := e.other.sent
			e.other.mu.Unlock()
			if e.received.Load() != sent && !p.aborted.Load() {
				return "bytes are missing: " + e.String() + "; other end: " + e.other.String()
			}
			if s.readable(e) {
				return "readable, and not served: " + e.String() + "; other end: " + e.other.String()
			}
		}
	}
	switch {
	case s.removed.Load() != s.removals.Load():
		return "an EventRemove"
	case s.postsGot.Load() != s.posted.Load():
		return "a post"
	}
	return ""
}

func (s *stressTest) readable(e *end) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fd >= 0 && sockettest.Now(e.fd)&(sockettest.In|sockettest.PeerClosed|sockettest.Dead|sockettest.Err) != 0
}

// removeAll removes what is left: each gives one EventRemove, and there is nothing else.
func (s *stressTest) removeAll() {
	w := s.newWorker(-1)
	for i, p := range s.live() {
		for _, e := range p.ends {
			if e.gone.Load() {
				continue
			}
			c := e.ctx.Load()
			if !c.state.CompareAndSwap(armed, removing) {
				s.fail("a context is %v at the end; %v", c, e)
				return
			}
			s.removals.Add(1)
			if i%2 == 0 {
				w.add(socknotify.Registration[*context]{Handle: uintptr(e.fd), Op: socknotify.OpRemove}, nil)
				continue
			}
			key, err := s.port.Deregister(socknotify.Registration[*context]{Handle: uintptr(e.fd)})
			if err != nil || key != c {
				s.fail("Deregister: %+v, %v; %v", key, err, e)
				return
			}
			w.handle(notification{Key: key, Events: socknotify.EventRemove})
		}
	}
	entries := make([]notification, 7)
	for end := time.Now().Add(patience); !s.failed(); {
		w.process(entries, 0)
		if len(w.regs) == 0 && s.removed.Load() == s.removals.Load() {
			break
		}
		if time.Now().After(end) {
			s.fail("%d of %d EventRemoves came", s.removed.Load(), s.removals.Load())
		}
	}
	if n, err := s.port.Process(nil, entries, 0); n != 0 && !s.failed() {
		s.fail("after every EventRemove came %+v, %v", entries[:n], err)
	}
}
