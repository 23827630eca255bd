package contend

import (
	"sync"
	"time"

	"github.com/socknotify/socknotify"

	"github.com/socknotify/socknotify/bench/internal/param"
)

// posts is the number of posts before new posters and waiters are started.
const posts = 1 << 16

// A queue carries posts. It is used once.
type queue struct {
	post  func(n int)  // makes n posts
	end   func()       // called after the last post; the waiters finish
	wait  func() error // dequeues until the end
	drain func() error // dequeues the posts if there was no waiter
}

// posting measures posts with a number of posters and waiters. Without waiters it measures the posting alone.
func posting(p param.Params, newQueue func() queue) (param.Outcome, error) {
	var total param.Outcome
	for first, until := true, time.Now().Add(p.Duration()); first || time.Now().Before(until); first = false {
		q := newQueue()
		failed := make(chan error, p.Waiters)
		var posters, waiters sync.WaitGroup
		w := startWatch()
		for range p.Waiters {
			waiters.Go(func() { failed <- q.wait() })
		}
		for range p.Posters {
			posters.Go(func() { q.post(posts / p.Posters) })
		}
		posters.Wait()
		if p.Waiters > 0 {
			q.end()
			waiters.Wait()
		}
		o := w.stop(int64(posts / p.Posters * p.Posters))
		if p.Waiters == 0 {
			failed = make(chan error, 1)
			failed <- q.drain()
		}
		close(failed)
		for err := range failed {
			if err != nil {
				return total, err
			}
		}
		if !first { // during the first, the queue grew
			total.Ops += o.Ops
			total.CPU += o.CPU
			total.Elapsed += o.Elapsed
			total.Switches += o.Switches
		} else {
			until = time.Now().Add(p.Duration())
		}
	}
	return total, nil
}

// channelPost is a buffered channel.
func channelPost(p param.Params, _ func(string)) (param.Outcome, error) {
	type message struct {
		key  int
		data uintptr
	}
	room := 1024
	if p.Waiters == 0 {
		room = posts
	}
	return posting(p, func() queue {
		ch := make(chan message, room)
		return queue{
			post: func(n int) {
				for i := range n {
					ch <- message{1, uintptr(i)}
				}
			},
			end: func() { close(ch) },
			wait: func() error {
				for range ch {
				}
				return nil
			},
			drain: func() error {
				for range len(ch) {
					<-ch
				}
				return nil
			},
		}
	})
}

// portPost is Post and Wait. A post with the last key ends one waiter.
func portPost(backend string) func(param.Params, func(string)) (param.Outcome, error) {
	const last = -1
	return func(p param.Params, _ func(string)) (param.Outcome, error) {
		port, err := socknotify.New[int](socknotify.WithBackend(backend))
		if err != nil {
			return param.Outcome{}, err
		}
		defer port.Close()
		q := queue{
			post: func(n int) {
				for i := range n {
					port.Post(1, uintptr(i))
				}
			},
			end: func() {
				for range p.Waiters {
					port.Post(last, 0)
				}
			},
			wait: func() error {
				out := make([]socknotify.Notification[int], p.Batch)
				for {
					n, err := port.Process(nil, out, -1)
					if err != nil {
						return err
					}
					if out[n-1].Key != last {
						continue
					}
					for i := n - 2; i >= 0 && out[i].Key == last; i-- {
						port.Post(last, 0) // the end of another waiter
					}
					return nil
				}
			},
			drain: func() error {
				out := make([]socknotify.Notification[int], 1024)
				for left := posts / p.Posters * p.Posters; left > 0; {
					n, err := port.Process(nil, out, -1)
					if err != nil {
						return err
					}
					left -= n
				}
				return nil
			},
		}
		return posting(p, func() queue { return q })
	}
}
