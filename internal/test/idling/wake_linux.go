package idling

import (
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
)

// CompareWakes measures what a request costs on a connection that asks seldom: each of wakeConns sends one every two
// seconds, at times that chance decides. Two servers run beside each other, on the same machine at the same time, in
// the roles "server" with the names stock and ours. Their clients are processes in the role "rare load", which must
// call RareLoad, with the server's address and args. CPU-µs is the CPU time of our server for each request, and the
// factors compare it with the other.
func CompareWakes(b *testing.B, stock, ours string, args ...string) {
	var us, p50, p99 [2]float64
	var pair sync.WaitGroup
	for i, name := range []string{stock, ours} {
		server := Start(b, "server", name)
		load := Start(b, "rare load", append([]string{server.Say("")}, args...)...)
		pair.Go(func() {
			load.Say("") // it is warm
			var before, after, requests float64
			_, err := fmt.Sscan(server.Say("cpu"), &before)
			check.OK(b, err)
			_, err = fmt.Sscan(load.Say("go"), &requests, &p50[i], &p99[i])
			check.OK(b, err)
			_, err = fmt.Sscan(server.Say("cpu"), &after)
			check.OK(b, err)
			us[i] = (after - before) / 1000 / requests
		})
	}
	pair.Wait()
	b.ReportMetric(us[0], "other-CPU-µs")
	b.ReportMetric(us[1], "CPU-µs")
	b.ReportMetric(us[1]/us[0], "CPU-factor")
	b.ReportMetric(p50[1]/p50[0], "p50-factor")
	b.ReportMetric(p99[1]/p99[0], "p99-factor")
	b.ReportMetric(0, "ns/op")
}

const (
	wakeConns = 4000
	wakeEvery = 2 * time.Second
	wakeTime  = 8 * time.Second
)

// RareLoad sends requests on each of its connections, one every wakeEvery. dial makes one, and returns what sends a
// request and waits for its answer. RareLoad says when all connections have had a pause, and prints the results of
// wakeTime after the next line of its input.
func RareLoad(dial func() (ask func() error, err error)) {
	var mu sync.Mutex
	var took []time.Duration // in the measured time
	var ready, done sync.WaitGroup
	begin, stop := make(chan struct{}), make(chan struct{})
	for range wakeConns {
		ask, err := dial()
		if err != nil {
			log.Fatal(err)
		}
		ready.Add(1)
		done.Go(func() {
			timed := func() time.Duration {
				sent := time.Now()
				if err := ask(); err != nil {
					log.Fatal(err)
				}
				return time.Since(sent)
			}
			timed()
			ready.Done()
			<-begin
			time.Sleep(rand.N(wakeEvery))
			ticks := time.NewTicker(wakeEvery)
			defer ticks.Stop()
			var mine []time.Duration
			for {
				mine = append(mine, timed())
				select {
				case <-ticks.C:
				case <-stop:
					mu.Lock()
					defer mu.Unlock()
					took = append(took, mine...)
					return
				}
			}
		})
	}
	ready.Wait()
	time.Sleep(wakeEvery)
	fmt.Println("warm")
	fmt.Scanln()
	close(begin)
	time.Sleep(wakeTime)
	close(stop)
	done.Wait()
	slices.Sort(took)
	at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))].Nanoseconds()) / 1000 }
	fmt.Println(len(took), at(0.5), at(0.99))
	io.Copy(io.Discard, os.Stdin)
}
