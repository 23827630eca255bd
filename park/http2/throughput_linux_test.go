package http2

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/idling"
)

// BenchmarkThroughput measures what park.HTTPServer and net/http's server do with a second of their CPU time, over one
// connection of Go's client. Each server is a process of its own; in each round both are loaded in turn. The ratio is that
// of the medians. Run it with -benchtime 9x for nine rounds.
func BenchmarkThroughput(b *testing.B) {
	const slice = time.Second // of each server in each round
	for _, kind := range []string{"h2c", "tls"} {
		for _, c := range []struct {
			name    string
			streams int
			path    string
		}{{"streams=1", 1, "/"}, {"streams=10", 10, "/"}, {"streams=100", 100, "/"},
			{"up", 1, "/up"}, {"down", 1, "/down"}} {
			b.Run(kind+"/"+c.name, func(b *testing.B) {
				var servers [2]*loaded
				for i, name := range []string{"http2 ", "net/http "} {
					servers[i] = newLoaded(b, name+kind, kind == "tls", c.path)
					servers[i].load(c.streams, slice/5)
				}
				var rates [2][]float64
				for round := range b.N {
					for i := range servers {
						i = (i + round) % 2
						rates[i] = append(rates[i], servers[i].load(c.streams, slice))
					}
				}
				ours, theirs := median(rates[0]), median(rates[1])
				unit := "requests"
				if c.path != "/" {
					unit, ours, theirs = "MiB", ours*largeBody/(1<<20), theirs*largeBody/(1<<20)
				}
				b.ReportMetric(ours, unit+"/CPU-s")
				b.ReportMetric(theirs, "net/http-"+unit+"/CPU-s")
				b.ReportMetric(ours/theirs, "ratio")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// loaded is a server process and its client.
type loaded struct {
	b       *testing.B
	process *idling.Process
	client  *http.Client
	url     string
	body    bool // a large one is sent
}

func newLoaded(b *testing.B, server string, secure bool, path string) *loaded {
	s := &loaded{b: b, process: idling.Start(b, "server", server), client: client(b), body: path == "/up"}
	s.client.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true // the process has its own certificate
	s.url = "http://" + s.process.Say("") + path
	if secure {
		s.url = "https" + s.url[len("http"):]
	}
	return s
}

// load sends requests by so many goroutines for a time, and returns how many of them a second of the server's CPU time
// answered.
func (s *loaded) load(streams int, d time.Duration) float64 {
	before := s.cpu()
	end := time.Now().Add(d)
	var done atomic.Int64
	var all sync.WaitGroup
	for range streams {
		all.Go(func() {
			for time.Now().Before(end) {
				if err := s.request(); err != nil {
					s.b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	return float64(done.Load()) / (float64(s.cpu()-before) / 1e9)
}

func (s *loaded) request() error {
	method, body := http.MethodGet, io.Reader(nil)
	if s.body {
		method, body = http.MethodPost, io.LimitReader(zeroReader{}, largeBody)
	}
	req, err := http.NewRequest(method, s.url, body)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	n, err := io.Copy(writerFunc(func(p []byte) (int, error) {
		if text.Len() < 100 {
			text.Write(p[:min(len(p), 100)])
		}
		return len(p), nil
	}), resp.Body)
	switch {
	case err != nil || resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s, %d bytes: %v", resp.Status, n, err)
	case s.body && text.String() != fmt.Sprint(largeBody, " <nil>"), !s.body && n != 5 && n != largeBody:
		return fmt.Errorf("%d bytes: %q", n, &text)
	}
	return nil
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { return len(p), nil }

func (s *loaded) cpu() int64 {
	n, err := strconv.ParseInt(s.process.Say("cpu"), 10, 64)
	must(s.b, err)
	return n
}
