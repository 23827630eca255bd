package park

import (
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/idling"
)

// BenchmarkWake measures connections that ask seldom: each of wakeConns sends a request every two seconds, at times that
// chance decides. The servers of a pair run beside each other, on the same machine at the same time, and their clients are
// processes of their own. CPU-µs is the CPU time of a server for each request, and the factors compare the HTTPServer
// with net/http.
func BenchmarkWake(b *testing.B) {
	for _, kind := range []struct {
		name, stock string
		secure      bool
	}{
		{"park HTTP", "net/http", false},
		{"park HTTP at once", "net/http", false},
		{"park HTTP TLS", "net/http TLS", true},
	} {
		b.Run(kind.name, func(b *testing.B) {
			for b.Loop() {
				var us, p50, p99 [2]float64
				var pair sync.WaitGroup
				for i, name := range []string{kind.stock, kind.name} {
					server := idling.Start(b, "server", name)
					load := idling.Start(b, "rare load", server.Say(""), fmt.Sprint(kind.secure))
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
				b.ReportMetric(us[0], "net/http-CPU-µs")
				b.ReportMetric(us[1], "CPU-µs")
				b.ReportMetric(us[1]/us[0], "CPU-factor")
				b.ReportMetric(p50[1]/p50[0], "p50-factor")
				b.ReportMetric(p99[1]/p99[0], "p99-factor")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// BenchmarkStorm measures what a server needs while clients connect and ask, one immediately after the other, a minute
// later, and when they have gone.
func BenchmarkStorm(b *testing.B) {
	for _, kind := range []string{"net/http", "park HTTP", "net/http TLS", "park HTTP TLS"} {
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				secure := strings.HasSuffix(kind, "TLS")
				idling.MeasureStorm(b, kind, kind, fmt.Sprint(secure)).Report(b)
			}
		})
	}
}

const (
	wakeConns = 4000
	wakeEvery = 2 * time.Second
	wakeTime  = 8 * time.Second
)

// runRareLoad sends requests on each of its connections, one every wakeEvery. It says when all connections have had a
// pause, and prints the results of wakeTime after the next line of its input.
func runRareLoad(address string, secure bool) {
	var mu sync.Mutex
	var took []time.Duration // in the measured time
	var ready, done sync.WaitGroup
	begin, stop := make(chan struct{}), make(chan struct{})
	for range wakeConns {
		conn, err := idling.Dial(address, secure)
		if err != nil {
			log.Fatal(err)
		}
		ready.Add(1)
		done.Go(func() {
			defer conn.Close()
			buf := make([]byte, 4096)
			ask := func() time.Duration {
				sent := time.Now()
				if _, err := io.WriteString(conn, hello); err != nil {
					log.Fatal(err)
				}
				if k, err := conn.Read(buf); err != nil || !strings.HasSuffix(string(buf[:k]), "\r\n\r\nx") {
					log.Fatalf("%q, %v", buf[:k], err)
				}
				return time.Since(sent)
			}
			ask()
			ready.Done()
			<-begin
			time.Sleep(rand.N(wakeEvery))
			ticks := time.NewTicker(wakeEvery)
			defer ticks.Stop()
			var mine []time.Duration
			for {
				mine = append(mine, ask())
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
