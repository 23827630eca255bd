package server_test

import (
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/server"
)

// Connections of one shard whose handlers are slow do not wait for each other while the worker of another shard is idle,
// and nor do those beside a single connection that keeps their worker busy. The worker that helps ends when it is not
// needed. No call is long enough for the watchdog to replace its worker.
func TestBusyShard(t *testing.T) {
	for name, slow := range map[string]int{"one": 1, "all": 8, "all on one processor": 8} {
		t.Run(name, func(t *testing.T) {
			if name == "all on one processor" { // which finds all of their requests together
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			}
			backendtest.Each(t, func(t *testing.T, backend string) {
				var running, together atomic.Int32
				began := make(chan bool, 8) // slow calls
				h := &handler{t: t, data: reading(func(c conn, text string) error {
					if running.Add(1) > 1 {
						together.Add(1)
					}
					if text[0] == '!' {
						began <- true
						await.Pause(20 * time.Millisecond)
					}
					running.Add(-1)
					return write(c, text)
				})}
				s := &srv{Handler: h, Backend: backend, Workers: 2}
				addr := start(t, s)
				var shard []net.Conn // the connections of the first shard
				for len(shard) < 8 {
					c := dial(t, addr)
					echoes(t, c, "hello")
					h.mu.Lock()
					n := len(h.conns)
					h.mu.Unlock()
					if server.ShardOf(h.conn(n)) == 0 {
						shard = append(shard, c)
					}
				}
				for round := 0; together.Load() < 20; round++ {
					for i, c := range shard {
						if i < slow {
							send(t, c, "!")
							if slow == 1 { // what was dequeued with a slow one waits for it
								<-began
							}
						} else {
							send(t, c, "hello")
						}
					}
					for i, c := range shard {
						if i < slow {
							expect(t, c, "!")
							if slow > 1 {
								<-began
							}
						} else {
							expect(t, c, "hello")
						}
					}
					if round == 200 {
						t.Fatalf("in %d rounds two handlers ran at the same time %d times", round, together.Load())
					}
				}
				if st := s.Stats(); st.Stuck != 0 {
					t.Errorf("%+v", st)
				}
				wait(t, func() bool { return s.Stats().Workers == 2 })
			})
		})
	}
}

// New connections are dealt out evenly.
func TestDeal(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		h := &handler{t: t}
		s := &srv{Handler: h, Backend: backend, Workers: 3}
		addr := start(t, s)
		const conns = 60
		var n [3]int
		for range conns {
			dial(t, addr)
		}
		for i := range conns {
			n[server.ShardOf(h.conn(i+1))]++
		}
		for _, k := range n {
			if k < conns/3-conns/10 || k > conns/3+conns/10 {
				t.Errorf("%d connections are dealt out as %v", conns, n)
			}
		}
	})
}
