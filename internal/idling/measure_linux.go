package idling

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Conns is the number of connections.
const Conns = 5000

// A Usage is what the connections made the server use more, in bytes. Heap is after two collections, and
// Stack what the runtime has in use for stacks. RSS is after the runtime has given back what it does not use.
// What the kernel keeps for a socket is in none.
type Usage struct{ Heap, Stack, RSS int64 }

// Live is both heap and stacks, for each connection.
func (u Usage) Live() float64 { return float64(u.Heap+u.Stack) / Conns }

// Report makes it a benchmark's result.
func (u Usage) Report(b *testing.B) {
	b.ReportMetric(u.Live(), "live-B/conn")
	b.ReportMetric(float64(u.Heap)/Conns, "heap-B/conn")
	b.ReportMetric(float64(u.Stack)/Conns, "stack-B/conn")
	b.ReportMetric(float64(u.RSS)/Conns, "RSS-B/conn")
	b.ReportMetric(0, "ns/op")
}

// Enough skips a test where the system does not allow that many descriptors.
func Enough(t testing.TB) {
	t.Helper()
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	if limit.Cur < Conns+100 {
		t.Skipf("%d connections, and %d descriptors at most", Conns, limit.Cur)
	}
}

// Measure starts a process in the role "server", which calls Serve, and one in the role "clients", which
// calls Connect. The clients have the server's address as their first argument, before args.
func Measure(t testing.TB, server string, args ...string) Usage {
	t.Helper()
	s := Start(t, "server", server)
	address := s.Say("")
	before := s.usage("before")
	clients := Start(t, "clients", append([]string{address}, args...)...)
	if got := clients.Say(""); got != ready {
		t.Fatalf("clients: %q", got)
	}
	after := s.usage("after")
	return Usage{after.Heap - before.Heap, after.Stack - before.Stack, after.RSS - before.RSS}
}

func (p *Process) usage(when string) (u Usage) {
	p.t.Helper()
	_, err := fmt.Sscan(p.Say(when), &u.Heap, &u.Stack, &u.RSS)
	must(p.t, err)
	return u
}

const ready = "ready"

// Serve is the server's side of Measure, once it serves. settled counts the connections that wait for their
// next request. It answers "cpu" with the nanoseconds that the process has used.
func Serve(ln net.Listener, settled func() int) {
	fmt.Println(ln.Addr())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if in.Text() == "cpu" {
			fmt.Println(CPU())
			continue
		}
		if in.Text() == "after" {
			for settled() < Conns {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(200 * time.Millisecond) // for the last of them to wait
		}
		runtime.GC()
		debug.FreeOSMemory() // which collects as well
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Println(m.HeapAlloc, m.StackInuse, residentSize())
	}
}

// Connect is the clients' side of Measure. dial connects, and has a request answered.
func Connect(dial func() (net.Conn, error)) {
	var conns [Conns]net.Conn
	for i := range conns {
		var err error
		if conns[i], err = dial(); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(ready)
	io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(&conns)
}

// CPU is what the process has used, in nanoseconds.
func CPU() int64 {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

func residentSize() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		log.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
