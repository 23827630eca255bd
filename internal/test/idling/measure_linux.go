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

	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
)

// Conns is the number of connections: 5,000, or what the environment variable SOCKNOTIFY_CONNS says. A test program may
// set it first in TestMain.
var Conns = connsFromEnv()

func connsFromEnv() int {
	text, ok := os.LookupEnv("SOCKNOTIFY_CONNS")
	if !ok {
		return 5000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 {
		log.Fatalf("SOCKNOTIFY_CONNS is %q", text)
	}
	return n
}

// A Usage is the additional memory of a server with connections, in bytes. Heap is measured after two garbage
// collections. Stack is the memory that the runtime uses for stacks. RSS is measured after the runtime has returned
// unused memory. The memory of the kernel for the sockets is not included.
type Usage struct{ Heap, Stack, RSS int64 }

// Live returns the heap and stack memory per connection.
func (u Usage) Live() float64 { return perConn(u.Heap + u.Stack) }

func perConn(n int64) float64 { return float64(n) / float64(Conns) }

// Report reports u as the result of a benchmark.
func (u Usage) Report(b *testing.B) {
	b.ReportMetric(u.Live(), "live-B/conn")
	b.ReportMetric(perConn(u.Heap), "heap-B/conn")
	b.ReportMetric(perConn(u.Stack), "stack-B/conn")
	b.ReportMetric(perConn(u.RSS), "RSS-B/conn")
	b.ReportMetric(0, "ns/op")
}

// Enough skips the test if the system does not allow a descriptor for each connection.
func Enough(t testing.TB) {
	t.Helper()
	Descriptors(t, Conns)
}

// Descriptors skips the test if the system does not allow a process n descriptors.
func Descriptors(t testing.TB, n int) {
	t.Helper()
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	if limit.Cur < uint64(n)+100 {
		t.Skipf("%d descriptors are needed, %d are allowed (ulimit -n)", n, limit.Cur)
	}
}

// Measure starts a process in the role "server", which must call Serve, and one in the role "clients", which must
// call Connect. The first argument of the clients is the server's address; args follow.
//
// The server has two processors on every machine. The threads, workers and caches of more would count as memory of the
// connections: a thread alone has 48 KiB of stacks, which is 10 bytes for each of 5,000.
func Measure(t testing.TB, server string, args ...string) Usage {
	t.Helper()
	s := start(t, append(os.Environ(), "GOMAXPROCS=2"), "server", server)
	address := s.Say("")
	before := s.usage("before")
	clients := Start(t, "clients", append([]string{address}, args...)...)
	if got := clients.Say(""); got != ready {
		t.Fatalf("clients: %q", got)
	}
	after := s.usage("after")
	return Usage{after.Heap - before.Heap, after.Stack - before.Stack, after.RSS - before.RSS}
}

// A Storm is what a server needed for connections that come one immediately after the other, in bytes. None of these
// figures is measured after a collection that the measurement asks for, but for Kept.
type Storm struct {
	Peak    int64 // the highest resident size while they came, beyond that before
	Settled int64 // the resident size a minute later
	Kept    int64 // live, when they have gone
}

// Report reports s as the result of a benchmark.
func (s Storm) Report(b *testing.B) {
	b.ReportMetric(perConn(s.Peak), "peak-RSS-B/conn")
	b.ReportMetric(perConn(s.Settled), "settled-RSS-B/conn")
	b.ReportMetric(perConn(s.Kept), "kept-B/conn")
	b.ReportMetric(0, "ns/op")
}

// MeasureStorm is Measure for a Storm.
func MeasureStorm(t testing.TB, server string, args ...string) (storm Storm) {
	t.Helper()
	s := Start(t, "server", server)
	address := s.Say("")
	before := s.usage("before")
	clients := Start(t, "clients", append([]string{address}, args...)...)
	if got := clients.Say(""); got != ready {
		t.Fatalf("clients: %q", got)
	}
	_, peak := s.resident()
	time.Sleep(time.Minute)
	settled, _ := s.resident()
	clients.end()
	var kept Usage
	for last := int64(-1); kept.Heap != last; {
		last = kept.Heap
		time.Sleep(10 * time.Second) // more than the lot needs to find what is closed
		kept = s.usage("before")
		kept.Heap = kept.Heap >> 16 << 16
	}
	return Storm{peak - before.RSS, settled - before.RSS, kept.Heap + kept.Stack - before.Heap - before.Stack}
}

// resident returns the resident size of a server, and the highest that it had.
func (p *Process) resident() (now, highest int64) {
	p.t.Helper()
	_, err := fmt.Sscan(p.Say("resident"), &now, &highest)
	must(p.t, err)
	return now, highest
}

func (p *Process) usage(when string) (u Usage) {
	p.t.Helper()
	_, err := fmt.Sscan(p.Say(when), &u.Heap, &u.Stack, &u.RSS)
	must(p.t, err)
	return u
}

const ready = "ready"

// Serve is called in the server process, after it has started serving. It answers the requests of Measure. settled
// returns the number of connections that wait for their next request. Serve answers "cpu" with the CPU time of the
// process in nanoseconds.
func Serve(ln net.Listener, settled func() int) {
	fmt.Println(ln.Addr())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch in.Text() {
		case "cpu":
			fmt.Println(CPU())
			continue
		case "resident":
			fmt.Println(residentSize(), highestResident())
			continue
		}
		if in.Text() == "after" {
			settle(settled)
		}
		m := collect()
		for in.Text() == "after" { // until the last connections have become idle
			time.Sleep(200 * time.Millisecond)
			was := m.HeapAlloc + m.StackInuse
			if m = collect(); m.HeapAlloc+m.StackInuse+uint64(Conns) > was { // it falls by less than a byte for each
				break
			}
		}
		fmt.Println(m.HeapAlloc, m.StackInuse, residentSize())
	}
}

// settle waits until all connections are idle. If their number stays the same for a minute, some never will be, and the
// process ends with the reason.
func settle(settled func() int) {
	idle, since := -1, time.Now()
	for {
		n, ciphers := settled(), tlsrecord.Live()
		switch {
		case n >= Conns && ciphers == 0:
			return
		case n-ciphers != idle:
			idle, since = n-ciphers, time.Now()
		case time.Since(since) > time.Minute:
			stacks := make([]byte, 1<<16)
			log.Fatalf("%d of %d connections are idle, %d have ciphers:\n%s", n, Conns, ciphers,
				stacks[:runtime.Stack(stacks, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// collect returns the memory in use after two garbage collections.
func collect() (m runtime.MemStats) {
	runtime.GC()
	debug.FreeOSMemory()
	runtime.ReadMemStats(&m)
	return m
}

// Connect is called in the clients process. dial connects to the server and completes one request.
func Connect(dial func() (net.Conn, error)) {
	conns := make([]net.Conn, Conns)
	for i := range conns {
		var err error
		if conns[i], err = dial(); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(ready)
	io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(conns)
}

// CPU returns the CPU time of the process in nanoseconds.
func CPU() int64 {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// highestResident returns the highest resident size that the process had. That of getrusage includes the parent's.
func highestResident() (n int64) {
	b, err := os.ReadFile("/proc/self/status")
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	if err == nil {
		_, err = fmt.Sscan(after, &n) // in KiB
	}
	if err != nil {
		log.Fatal(err)
	}
	return n << 10
}

func residentSize() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	var size, resident int64 // in pages
	if err == nil {
		_, err = fmt.Sscan(string(b), &size, &resident)
	}
	if err != nil {
		log.Fatal(err)
	}
	return resident * int64(os.Getpagesize())
}
