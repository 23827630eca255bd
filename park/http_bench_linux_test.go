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

	"github.com/socknotify/socknotify/internal/test/check"

	"github.com/socknotify/socknotify/internal/test/idling"
)

// BenchmarkBusyHTTP measures busy keep-alive connections with net/http and with an HTTPServer. Compare results within
// one run only. Each client has one outstanding request. The HTTPServer is measured with its default Linger, with which
// busy connections are never parked, and with parking after every request, which is the worst case. The server and the
// clients are separate processes; CPU-µs is the CPU time of the server per request.
func BenchmarkBusyHTTP(b *testing.B) {
	for _, conns := range []int{1, 64, 1000} {
		for _, kind := range []string{"net/http", "park HTTP", "park HTTP at once"} {
			b.Run(fmt.Sprintf("%d/%s", conns, kind), func(b *testing.B) {
				for b.Loop() {
					server := idling.Start(b, "server", kind)
					load := idling.Start(b, "load", server.Say(""), strconv.Itoa(conns))
					var requests, perSecond, p50, p99, cpu float64
					_, err := fmt.Sscan(load.Say(""), &requests, &perSecond, &p50, &p99)
					check.OK(b, err)
					_, err = fmt.Sscan(server.Say("cpu"), &cpu)
					check.OK(b, err)
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

// runLoad sends requests on each of its connections, one at a time, and prints the results.
func runLoad(address, number string) {
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
				// The response has a fixed length and is written at once.
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
