package park

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Busy keep-alive connections, through stock net/http and through ours; compare within one run. Each client
// has one request under way. Ours is measured with the linger that it has by itself, for which busy
// connections are never parked, and parking after every request, which is the worst there is. CPU-µs are the
// server's for a request; it is a process of its own, as the clients are.
func BenchmarkBusy(b *testing.B) {
	for _, conns := range []int{1, 64, 1000} {
		for _, kind := range []string{"net/http", "park HTTP", "park HTTP at once"} {
			b.Run(fmt.Sprintf("%d/%s", conns, kind), func(b *testing.B) {
				for b.Loop() {
					server := startRole(b, "server", kind)
					load := startRole(b, "load", server.say(""), strconv.Itoa(conns))
					var requests, perSecond, p50, p99, cpu float64
					_, err := fmt.Sscan(load.say(""), &requests, &perSecond, &p50, &p99)
					must(b, err)
					_, err = fmt.Sscan(server.say("cpu"), &cpu)
					must(b, err)
					b.ReportMetric(perSecond, "requests/s")
					b.ReportMetric(cpu/1000/requests, "CPU-µs/request")
					b.ReportMetric(p50, "p50-µs")
					b.ReportMetric(p99, "p99-µs")
					b.ReportMetric(0, "ns/op")
				}
			})
		}
	}
}

const loadTime = 2 * time.Second

// playLoad sends requests on each of its connections, one at a time, and says how they fared.
func playLoad(address, number string) {
	n, _ := strconv.Atoi(number)
	var mu sync.Mutex
	var took []time.Duration
	var clients sync.WaitGroup
	start := time.Now()
	for range n {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			log.Fatal(err)
		}
		clients.Go(func() {
			defer conn.Close()
			var mine []time.Duration
			buf := make([]byte, 4096)
			for time.Since(start) < loadTime {
				sent := time.Now()
				if _, err := io.WriteString(conn, hello); err != nil {
					log.Fatal(err)
				}
				// It has a fixed length, and is written at once.
				k, err := conn.Read(buf)
				if err != nil || !strings.HasSuffix(string(buf[:k]), "\r\n\r\nx") {
					log.Fatalf("%q, %v", buf[:k], err)
				}
				mine = append(mine, time.Since(sent))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
		})
	}
	clients.Wait()
	slices.Sort(took)
	at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))].Nanoseconds()) / 1000 }
	fmt.Println(len(took), float64(len(took))/time.Since(start).Seconds(), at(0.5), at(0.99))
	io.Copy(io.Discard, os.Stdin)
}
