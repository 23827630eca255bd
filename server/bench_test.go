package server_test

import (
	"bufio"
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/examples/rawecho"
	"github.com/socknotify/socknotify/internal/load"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
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

// role runs the server that the environment names, and tells its address.
func role(name string) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	kind, rest, _ := strings.Cut(name, "/")
	if kind == "abused" {
		abused(ctx, rest)
		return
	}
	workers := 1
	if rest == "2" {
		workers = 2
	}
	if kind == "raw" {
		rawecho.Run(ctx, rawecho.Config{Addr: sock.Loopback, Workers: workers, Listening: func(a netip.AddrPort) {
			os.Stdout.WriteString(a.String() + "\n")
		}})
		return
	}
	s := &server.Server[struct{}]{Handler: plain{}, Workers: workers, IdleTimeout: time.Minute}
	if kind == "ports" {
		s.Ports = workers
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	os.Stdout.WriteString(l.Addr().String() + "\n")
	go s.Serve(l)
	<-ctx.Done()
	s.Close()
	s.Shutdown(context.Background())
}

// BenchmarkEcho is CPU per request of servers in processes of their own: a raw port, which is the floor, a
// server, and one with a port per worker; with so many workers. Compare within one run.
func BenchmarkEcho(b *testing.B) {
	for _, r := range []string{"raw/1", "server/1", "raw/2", "server/2", "ports/2"} {
		b.Run(r, func(b *testing.B) {
			for b.Loop() {
				cpu, requests := benchEcho(b, r, 2*time.Second)
				b.ReportMetric(float64(cpu.Nanoseconds())/float64(requests), "cpu-ns/request")
			}
		})
	}
}

func benchEcho(tb testing.TB, r string, d time.Duration) (cpu time.Duration, requests int64) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+r)
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		var res load.Result
		res, err = load.Run(tb.Context(), load.Config{Addr: strings.TrimSpace(addr), Connections: 100, Size: 64,
			Depth: 1, Duration: d, Timeout: soon, Workers: 1}, nil)
		requests = res.Requests
	}
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	if err != nil {
		tb.Fatal(err)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), requests
}
