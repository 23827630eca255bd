package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/load"
)

// BenchmarkAbuse measures good requests to a server in a process of its own beside bad peers: the server's CPU per good
// request, as a multiple of that without bad peers, and the latencies. Compare within one run.
func BenchmarkAbuse(b *testing.B) {
	for _, limit := range []string{"MaxConns", "EMFILE"} {
		b.Run(limit, func(b *testing.B) {
			for b.Loop() {
				abuse(b, limit, 5*time.Second)
			}
		})
	}
}

func abuse(b *testing.B, limit string, d time.Duration) {
	cmd := exec.Command(os.Args[0])
	addr, out := startRole(b, cmd, "abused/"+limit)
	defer cmd.Wait()
	defer cmd.Process.Kill() // where something has failed
	if limit == "EMFILE" {
		if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
			b.Fatal(err)
		}
	}
	good := func(connected func()) (res load.Result, each time.Duration) {
		before := cpuOf(b, cmd.Process.Pid)
		res, err := load.Run(b.Context(), load.Config{Addr: addr, Connections: goodOnes, Size: request, Depth: 1,
			Duration: d, Timeout: soon, Strict: true, Connected: connected}, nil)
		if err != nil {
			b.Fatal(err)
		}
		return res, (cpuOf(b, cmd.Process.Pid) - before) / time.Duration(res.Requests)
	}
	good(func() {})
	quiet, before := good(func() {})
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var bad sync.WaitGroup
	defer bad.Wait()
	defer cancel()
	crowd(b, ctx, &bad, addr)
	rude, during := good(func() { flood500(b, ctx, &bad, addr) }) // when the good ones are in
	b.ReportMetric(float64(before), "quiet-ns/request")
	b.ReportMetric(float64(during)/float64(before), "cpu-ratio")
	b.ReportMetric(float64(quiet.P99)/1e6, "quiet-p99-ms")
	b.ReportMetric(float64(rude.P99)/1e6, "p99-ms")
	b.ReportMetric(float64(peakOf(b, cmd.Process.Pid))/(1<<20), "peak-MiB")
	cmd.Process.Signal(os.Interrupt)
	line, err := out.ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	f := strings.Fields(line)
	refused, _ := strconv.ParseFloat(f[0], 64)
	queued, _ := strconv.ParseFloat(f[1], 64)
	shut, _ := strconv.ParseFloat(f[2], 64)
	if f[3] != "<nil>" || limit == "MaxConns" && refused == 0 || queued > greedy<<16 {
		b.Errorf("refused, queued, ms, error: %s", line)
	}
	b.ReportMetric(refused, "refused")
	b.ReportMetric(shut, "shutdown-ms")
}

// crowd starts the bad peers that stay connected.
func crowd(b *testing.B, ctx context.Context, bad *sync.WaitGroup, addr string) {
	all := make([]net.Conn, lorises)
	for i := range all {
		all[i] = dial(b, addr)
	}
	at := 0
	often(ctx, bad, time.Millisecond, func() { // each of them every five seconds
		if _, err := all[at%lorises].Write([]byte("x")); err != nil && ctx.Err() == nil {
			b.Error(err)
		}
		at++
	})
	much := make([]byte, 1<<16)
	for range greedy {
		often(ctx, bad, time.Millisecond, func() { // until it is closed for that
			c, err := net.Dial("tcp", addr)
			if err != nil {
				return
			}
			defer context.AfterFunc(ctx, func() { c.Close() })()
			defer c.Close()
			for err == nil {
				_, err = c.Write(much)
			}
		})
	}
}

// flood500 makes 500 connections a second that the server refuses.
func flood500(b *testing.B, ctx context.Context, bad *sync.WaitGroup, addr string) {
	for range late {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Error(err)
			return
		}
		b.Cleanup(func() { c.Close() })
	}
	often(ctx, bad, 2*time.Millisecond, func() {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		c.SetDeadline(time.Now().Add(time.Millisecond)) // one that waits to be accepted is given up
		io.Copy(io.Discard, c)
		c.Close()
	})
}

func often(ctx context.Context, bad *sync.WaitGroup, every time.Duration, f func()) {
	bad.Go(func() {
		clock := time.NewTicker(every)
		defer clock.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-clock.C:
				f()
			}
		}
	})
}

// cpuOf returns the processor time of a process.
func cpuOf(b *testing.B, pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ
}

// peakOf returns the peak memory of a process.
func peakOf(b *testing.B, pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[0] == "VmHWM:" {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			return kib << 10
		}
	}
	b.Fatal("no VmHWM")
	return 0
}
