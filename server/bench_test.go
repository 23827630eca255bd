package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/internal/load"
	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/server"
)

// roleEnv makes the test program a server of a benchmark.
const roleEnv = "SOCKNOTIFY_BENCH_SERVER"

// A plain is the smallest handler.
type plain struct{}

func (plain) Open(c *server.Conn[struct{}]) error { return nil }
func (plain) Data(c *server.Conn[struct{}], buf []byte) error {
	n, err := c.Read(buf)
	if err == nil {
		_, err = c.Write(buf[:n])
	}
	return err
}
func (plain) Close(c *server.Conn[struct{}], cause error) {}

// A pieces is plain with the input, and answers in pieces.
type pieces struct{ plain }

func (pieces) Data(c *server.Conn[struct{}], buf []byte) error {
	for {
		b, err := c.Next(request)
		if err != nil {
			return err
		}
		for len(b) > 0 {
			if _, err := c.Write(b[:16]); err != nil {
				return err
			}
			b = b[16:]
		}
	}
}

// A large is plain, but for a first message that asks for 1 GiB.
type large struct{ plain }

const ask = "large"

func (large) Data(c *server.Conn[struct{}], buf []byte) error {
	n, err := c.Read(buf)
	switch {
	case err != nil:
		return err
	case string(buf[:n]) == ask:
		return c.Stream(&zeros{left: 1 << 30})
	}
	_, err = c.Write(buf[:n])
	return err
}

// role runs the server that the environment names, and prints its address.
func role(name string) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	kind, rest, _ := strings.Cut(name, "/")
	switch kind {
	case "abused":
		abused(ctx, rest)
		return
	case "uneven":
		uneven(ctx, rest)
		return
	}
	workers := 1
	if rest == "2" {
		workers = 2
	}
	s := &server.Server[struct{}]{Handler: plain{}, Workers: workers, IdleTimeout: time.Minute}
	serve := s.Serve
	switch kind {
	case "tls", "cryptotls":
		cert, _, err := selfcert.New(time.Hour, "localhost")
		if err != nil {
			panic(err)
		}
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
		s.CryptoTLS = kind == "cryptotls"
		s.BufferSize = 32 << 10
		serve = func(l net.Listener) error { return s.ServeTLS(l, "", "") }
	case "input":
		s.Handler = pieces{}
	case "large":
		s.Handler = large{}
	}
	if kind == "shared" {
		s.Shards = 1
	}
	if kind == "observed" {
		s.TimeCalls, s.Name = true, "bench"
		page := debug.New(debug.Server("bench", s)) // observes the port, and reads the counts once a second
		defer page.Close()
		go func() {
			for ctx.Err() == nil {
				s.Stats() // as a scrape does
				await.Pause(time.Second)
			}
		}()
	}
	until(ctx, serve)
	s.Close()
	s.Shutdown(context.Background())
}

// BenchmarkEcho measures the CPU per request of servers in processes of their own: a server with its defaults, and one whose
// workers share a port. The number is that of workers. Compare within one run. bench has a loop on a port beside them.
func BenchmarkEcho(b *testing.B) {
	for _, r := range []string{"server/1", "server/2", "shared/2"} {
		b.Run(r, func(b *testing.B) {
			for b.Loop() {
				res, cpu := benchServer(b, r, requests(100, 0, 2*time.Second), nil)
				b.ReportMetric(float64(cpu.Nanoseconds())/float64(res.Requests), "cpu-ns/request")
			}
		})
	}
}

// BenchmarkTLS measures the CPU per request of a server that keeps its TLS records itself, and of one
// that leaves them to crypto/tls. Compare within one run.
func BenchmarkTLS(b *testing.B) {
	for _, size := range []int{64, 16 << 10} {
		for _, r := range []string{"tls/1", "cryptotls/1"} {
			b.Run(fmt.Sprintf("%d/%s", size, r), func(b *testing.B) {
				for b.Loop() {
					config := load.Config{Connections: 100, Size: size, Duration: 2 * time.Second,
						TLS: &tls.Config{InsecureSkipVerify: true}}
					res, cpu := benchServer(b, r, config, nil)
					b.ReportMetric(float64(cpu.Nanoseconds())/float64(res.Requests), "cpu-ns/request")
				}
			})
		}
	}
}

// BenchmarkObserved measures what a page, a scrape each second, TimeCalls and Name add to the CPU per request. Compare
// within one run.
func BenchmarkObserved(b *testing.B) {
	for _, r := range []string{"server/1", "observed/1", "server/2", "observed/2"} {
		b.Run(r, func(b *testing.B) {
			for b.Loop() {
				res, cpu := benchServer(b, r, requests(100, 0, 2*time.Second), nil)
				b.ReportMetric(float64(cpu.Nanoseconds())/float64(res.Requests), "cpu-ns/request")
			}
		})
	}
}

// BenchmarkUneven measures the latencies of a server with two workers and a hundred connections, for one of which the
// handler sleeps half of the time: with one port, and with the default of one for each worker, where half of the other
// connections share that one's shard. Compare within one run.
func BenchmarkUneven(b *testing.B) {
	for _, shards := range []string{"1", "0"} {
		b.Run("shards="+shards, func(b *testing.B) {
			for b.Loop() {
				res, _ := benchServer(b, "uneven/"+shards, requests(100, 5000, 2*time.Second), nil)
				b.ReportMetric(float64(res.P50)/1e3, "p50-us")
				b.ReportMetric(float64(res.P90)/1e3, "p90-us")
			}
		})
	}
}

// BenchmarkSlowReader measures the latencies of a thousand connections: alone, beside a peer that has asked for 1 GiB and
// reads nothing of it, and beside one that reads 13 MB a second. Compare within one run.
func BenchmarkSlowReader(b *testing.B) {
	for _, r := range []struct {
		name string
		each time.Duration // between two reads of 64 KiB; 0 for none
	}{{"alone", -1}, {"stalled", 0}, {"slow", 5 * time.Millisecond}} {
		b.Run(r.name, func(b *testing.B) {
			for b.Loop() {
				res, _ := benchServer(b, "large/2", requests(1000, 20000, 4*time.Second), func(addr string) {
					if r.each < 0 {
						return
					}
					c, err := net.Dial("tcp", addr)
					if err == nil {
						_, err = c.Write([]byte(ask))
					}
					if err != nil {
						b.Error(err)
						return
					}
					b.Cleanup(func() { c.Close() })
					if r.each == 0 {
						return
					}
					go func() {
						for buf := make([]byte, 64<<10); err == nil; await.Pause(r.each) {
							_, err = c.Read(buf)
						}
					}()
				})
				b.ReportMetric(float64(res.P50)/1e3, "p50-us")
				b.ReportMetric(float64(res.P99)/1e3, "p99-us")
			}
		})
	}
}

// A busy is a handler that is slow for one connection.
type busy struct{ n atomic.Int64 }

func (*busy) Close(c *server.Conn[bool], cause error) {}

func (h *busy) Open(c *server.Conn[bool]) error {
	c.Value = h.n.Add(1) == 50
	return nil
}

func (*busy) Data(c *server.Conn[bool], buf []byte) error {
	n, err := c.Read(buf)
	if err != nil {
		return err
	}
	if c.Value {
		await.Pause(10 * time.Millisecond)
	}
	_, err = c.Write(buf[:n])
	return err
}

func uneven(ctx context.Context, shards string) {
	s := &server.Server[bool]{Handler: &busy{}, Workers: 2}
	if shards == "1" {
		s.Shards = 1
	}
	until(ctx, s.Serve)
	s.Close()
	s.Shutdown(context.Background())
}

// until prints the address that it serves on, and serves until it is interrupted.
func until(ctx context.Context, serve func(net.Listener) error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	os.Stdout.WriteString(l.Addr().String() + "\n")
	go serve(l)
	<-ctx.Done()
}

// requests are of 64 bytes: as many as are answered if rate is 0, and otherwise rate in a second.
func requests(connections int, rate float64, d time.Duration) load.Config {
	return load.Config{Connections: connections, Size: 64, Rate: rate, Duration: d}
}

// startRole starts a command that runs the server of a role, and returns its address and the rest
// of what it prints.
func startRole(tb testing.TB, cmd *exec.Cmd, role string) (addr string, out *bufio.Reader) {
	tb.Helper()
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	out = bufio.NewReader(pipe)
	if addr, err = out.ReadString('\n'); err != nil {
		tb.Fatal(err, cmd.Wait())
	}
	return strings.TrimSpace(addr), out
}

// benchServer starts the server of a role, loads it, and returns the processor time that the server
// used. beside, which may be nil, is called with the address before the load begins.
func benchServer(tb testing.TB, r string, config load.Config, beside func(addr string)) (res load.Result, cpu time.Duration) {
	cmd := exec.Command(os.Args[0])
	addr, _ := startRole(tb, cmd, r)
	if beside != nil {
		beside(addr)
	}
	config.Addr, config.Depth, config.Timeout, config.Strict = addr, 1, soon, true
	res, err := load.Run(tb.Context(), config, nil)
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	if err != nil {
		tb.Fatal(err)
	}
	return res, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}
