//go:build unix || windows

package model

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	testawait "github.com/socknotify/socknotify/internal/test/await"
)

// waiters are goroutines that dequeue from the ports all the time.
type waiters struct {
	stopping atomic.Bool
	wake     func()
	done     sync.WaitGroup
}

// startWaiters starts n goroutines for each port. Half of them wait without limit, half a little.
func (w *world) startWaiters(n int) {
	ws := &waiters{}
	w.waiters = ws
	for i := range w.ports {
		for j := range n {
			ws.done.Add(1)
			go func() {
				defer ws.done.Done()
				w.wait(i, j)
			}()
		}
	}
	ws.wake = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, ps := range w.ports {
			for range n {
				_ = ps.p.Post(exitKey, 0)
			}
		}
	}
}

const exitKey = -3

// stop ends the waiters, with a post for each.
func (ws *waiters) stop() {
	ws.stopping.Store(true)
	ws.wake()
	ws.done.Wait()
}

func (w *world) wait(i, j int) {
	timeout := time.Duration(-1)
	if j%2 == 1 {
		timeout = time.Duration(j) * 500 * time.Microsecond
	}
	out := make([]notification, 1+j%4)
	for {
		w.mu.Lock()
		ps := w.ports[i]
		w.mu.Unlock()
		begin := w.now()
		n, err := ps.p.Process(nil, out, timeout)
		if n == 0 && !errors.Is(err, socknotify.ErrTimeout) && !errors.Is(err, socknotify.ErrClosed) {
			w.mu.Lock()
			w.fail("Wait: %v", err)
			w.mu.Unlock()
			return
		}
		if w.take(ps, out[:n], begin) || n == 0 && w.waiters.stopping.Load() {
			return
		}
	}
}

// take checks what a waiter was given. It is true when the waiter is to end.
func (w *world) take(ps *portState, out []notification, begin int) (exit bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := out[:0:0]
	exits := 0
	for _, n := range out {
		if n.Kind() == socknotify.KindPosted && n.Key == exitKey {
			exits++
			continue
		}
		kept = append(kept, n)
	}
	for range max(0, exits-1) {
		_ = ps.p.Post(exitKey, 0) // they were meant for others
	}
	w.checkCall(ps, kept, begin)
	if len(kept) > 0 && exits == 0 {
		// A persistent level comes again at once: let others in.
		w.mu.Unlock()
		testawait.Pause(100 * time.Microsecond)
		w.mu.Lock()
	}
	return exits > 0
}
