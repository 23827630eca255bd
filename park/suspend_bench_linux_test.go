package park

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"

	"github.com/socknotify/socknotify/internal/test/idling"
)

// BenchmarkResume measures what it costs to resume 5,000 waiting requests at once, beside handlers of
// net/http that wait for a channel each. CPU-µs is the CPU time of the server per answer, from the
// first Resume to the last answer. Compare results within one run only.
func BenchmarkResume(b *testing.B) {
	for _, secure := range []bool{false, true} {
		for _, kind := range []string{"waiting in net/http", "waiting in park HTTP"} {
			name := kind
			if secure {
				name += " TLS"
			}
			b.Run(name, func(b *testing.B) {
				for b.Loop() {
					measureResume(b, name, secure)
				}
			})
		}
	}
}

const resumeRounds = 5

func measureResume(b *testing.B, kind string, secure bool) {
	server := idling.Start(b, "server", kind)
	clients := idling.Start(b, "pollers", server.Say(""), strconv.FormatBool(secure))
	var cpu, p50, p99 float64
	for round := range resumeRounds + 1 {
		clients.Say("poll")
		before, err := strconv.ParseFloat(server.Say("cpu"), 64)
		check.OK(b, err)
		var m, n float64
		_, err = fmt.Sscan(clients.Say("resume"), &m, &n)
		check.OK(b, err)
		after, err := strconv.ParseFloat(server.Say("cpu"), 64)
		check.OK(b, err)
		if round > 0 { // the first one fills the pools
			cpu, p50, p99 = cpu+after-before, p50+m, p99+n
		}
	}
	b.ReportMetric(cpu/1000/resumeRounds/float64(idling.Conns), "CPU-µs/answer")
	b.ReportMetric(p50/resumeRounds, "p50-µs")
	b.ReportMetric(p99/resumeRounds, "p99-µs")
	b.ReportMetric(0, "ns/op")
}

// runPollers has clients that poll, and has the server resume them, as measureResume says.
func runPollers(address string, secure bool) {
	dial := func() (net.Conn, *bufio.Reader) {
		conn, err := idling.Dial(address, secure)
		if err != nil {
			log.Fatal(err)
		}
		return conn, bufio.NewReaderSize(conn, 512)
	}
	conns, readers := make([]net.Conn, idling.Conns), make([]*bufio.Reader, idling.Conns)
	for i := range conns {
		conns[i], readers[i] = dial()
	}
	control, in := dial()
	ask := func(path string) string {
		io.WriteString(control, request("GET", path))
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			log.Fatal(err)
		}
		text, _ := io.ReadAll(r.Body)
		return string(text)
	}
	took := make([]time.Duration, len(conns))
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() == "poll" {
			for _, conn := range conns {
				io.WriteString(conn, waitingRequest)
			}
			for ask("/waiting") != strconv.Itoa(len(conns)) {
				time.Sleep(10 * time.Millisecond) // the server is another process
			}
			fmt.Println("waiting")
			continue
		}
		var all sync.WaitGroup
		var began time.Time
		begin := make(chan struct{})
		for i, in := range readers {
			all.Go(func() {
				<-begin
				r, err := http.ReadResponse(in, nil)
				if err == nil {
					_, err = io.Copy(io.Discard, r.Body)
				}
				if err != nil {
					log.Fatal(err)
				}
				took[i] = time.Since(began)
			})
		}
		began = time.Now()
		close(begin)
		ask("/resume")
		all.Wait()
		slices.Sort(took)
		at := func(q float64) float64 {
			return float64(took[int(q*float64(len(took)-1))].Nanoseconds()) / 1000
		}
		fmt.Println(at(0.5), at(0.99))
	}
}
