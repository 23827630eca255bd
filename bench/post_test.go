//go:build linux

package main

import (
	"fmt"
	"sync"
	"testing"

	"github.com/socknotify/socknotify"
)

// BenchmarkPost makes posts with several posters, dequeued by as many waiters or, afterwards, by
// none: on a port, and on a buffered channel. Compare them with benchstat -col /contender.
func BenchmarkPost(b *testing.B) {
	for _, posters := range []int{1, 4, 16} {
		for _, waiters := range []int{0, posters} {
			name := func(contender string) string {
				return fmt.Sprintf("posters=%d/waiters=%d/contender=%s", posters, waiters, contender)
			}
			b.Run(name("channel"), func(b *testing.B) { benchmarkChannel(b, posters, waiters) })
			for _, backend := range socknotify.Backends() {
				b.Run(name(backend), func(b *testing.B) { benchmarkPort(b, backend, posters, waiters) })
			}
		}
	}
}

// benchmarkPosting runs posters and waiters until b.N posts were made, and dequeued if there are
// waiters.
func benchmarkPosting(b *testing.B, posters, waiters int, post func(n int), end, wait func()) {
	b.ReportAllocs()
	var posting, waiting sync.WaitGroup
	for range waiters {
		waiting.Go(wait)
	}
	for i := range posters {
		posting.Go(func() { post((b.N + i) / posters) })
	}
	posting.Wait()
	end()
	waiting.Wait()
}

func benchmarkChannel(b *testing.B, posters, waiters int) {
	type message struct {
		key  int
		data uintptr
	}
	size := 1024
	if waiters == 0 {
		size = b.N
	}
	ch := make(chan message, size)
	benchmarkPosting(b, posters, waiters, func(n int) {
		for i := range n {
			ch <- message{1, uintptr(i)}
		}
	}, func() { close(ch) }, func() {
		for range ch {
		}
	})
}

// A post with the last key ends one waiter.
func benchmarkPort(b *testing.B, backend string, posters, waiters int) {
	const last = -1
	port, err := socknotify.New[int](socknotify.WithBackend(backend))
	if err != nil {
		b.Fatal(err)
	}
	defer port.Close()
	benchmarkPosting(b, posters, waiters, func(n int) {
		for i := range n {
			port.Post(1, uintptr(i))
		}
	}, func() {
		for range waiters {
			port.Post(last, 0)
		}
	}, func() {
		out := make([]socknotify.Notification[int], 64)
		for {
			n, err := port.Process(nil, out, -1)
			if err != nil {
				b.Error(err)
				return
			}
			if out[n-1].Key != last {
				continue
			}
			for i := n - 2; i >= 0 && out[i].Key == last; i-- {
				port.Post(last, 0) // the end of another waiter
			}
			return
		}
	})
}
