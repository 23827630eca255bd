//go:build !race

package server_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/qemu"
	"github.com/socknotify/socknotify/server"
)

// The trace points of the kernel that perf counts.
const (
	allCalls = "raw_syscalls:sys_enter"
	enables  = "syscalls:sys_enter_epoll_ctl"
)

// byTheClock are calls that the runtime makes for its timer and for preemption, however many requests there are.
var byTheClock = []string{"syscalls:sys_enter_nanosleep", "syscalls:sys_enter_tgkill", "syscalls:sys_enter_getpid", "syscalls:sys_enter_rt_sigreturn"}

// A request of 64 bytes costs at most 2.2 system calls where a hundred connections are busy (a receive, a send, and a
// share in a wait), and one enable in twenty asks the kernel. The server is stopped while the hundred send, so that it
// is as busy as that whatever else the machine does. What it does to start, to accept and to end is taken off, and that
// it goes to sleep after each round, which a busy one does not: that is what rounds of a single request are for. The
// server "input" receives by the input, and answers with several writes; "observed" has a page, times and labels. It is perf that counts, since strace makes a server so slow that much of what it does is the runtime's.
func TestSystemCalls(t *testing.T) {
	if qemu.StartsNoProgram.Here() {
		t.Skip(qemu.StartsNoProgram)
	}
	long.Only(t, "perf counts the system calls of nine runs")
	if out, err := exec.Command("perf", perfStat(os.DevNull, "true")...).CombinedOutput(); err != nil {
		t.Skipf("perf: %v: %s", err, out)
	}
	for _, role := range []string{"server/1", "input/1", "observed/1"} {
		t.Run(role, func(t *testing.T) { testSystemCalls(t, role) })
	}
}

func testSystemCalls(t *testing.T, role string) {
	const conns, rounds = 100, 100
	idle, single, busy := callsOf(t, role, conns, 0, 0), callsOf(t, role, conns, 1, rounds), callsOf(t, role, conns, conns, rounds)
	calls := (busy.all - single.all) / ((conns - 1) * rounds)
	asks := (busy.enables - idle.enables) / (conns * rounds)
	t.Logf("%.4f system calls per request, and %.4f to enable, of idle %+v, single %+v, busy %+v", calls, asks, idle, single, busy)
	if calls > 2.2 {
		t.Errorf("%.4f system calls per request; want at most 2.2", calls)
	}
	if calls < 1.8 { // a receive and a send, give or take what the runtime did in one run and not in the other
		t.Errorf("%.4f system calls per request: they have not been counted", calls)
	}
	if asks > 0.05 {
		t.Errorf("%.4f epoll_ctl per request; want at most 0.05", asks)
	}
}

// systemCalls are numbers of system calls: all except those of byTheClock, and those that enable.
type systemCalls struct{ all, enables float64 }

// perfStat returns arguments that make perf count the calls of a command.
func perfStat(report, command string) []string {
	return []string{"stat", "-x", ",", "-e", strings.Join(append(slices.Clone(byTheClock), allCalls, enables), ","), "-o", report, command}
}

// callsOf returns the numbers of calls of a server with one worker, with conns connections, of which active send a request
// in each round.
func callsOf(t *testing.T, role string, conns, active, rounds int) systemCalls {
	report := filepath.Join(t.TempDir(), "calls")
	cmd := exec.Command("perf", perfStat(report, os.Args[0])...)
	addr, _ := startRole(t, cmd, role)
	server := childOf(t, cmd.Process.Pid)
	t.Cleanup(func() { server.Kill() }) // where something has failed
	all := make([]net.Conn, conns)
	b := make([]byte, request)
	for i := range all { // which has been served once
		all[i] = dial(t, addr)
		exchange(t, all[i:i+1], b, func() error { return nil })
	}
	for range rounds {
		stop(t, server)
		exchange(t, all[:active], b, func() error { return server.Signal(unix.SIGCONT) })
	}
	must(t, server.Signal(os.Interrupt))
	must(t, cmd.Wait())
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(line, ","); len(f) > 2 {
			if counts[f[2]], err = strconv.ParseFloat(f[0], 64); err != nil {
				t.Fatalf("perf: %s", line)
			}
		}
	}
	if len(counts) != len(byTheClock)+2 {
		t.Fatalf("perf: %s", text)
	}
	calls := systemCalls{counts[allCalls], counts[enables]}
	for _, what := range byTheClock {
		calls.all -= counts[what]
	}
	return calls
}

// exchange sends a request on each connection, lets the server continue, and reads the answers.
func exchange(t *testing.T, conns []net.Conn, b []byte, resume func() error) {
	t.Helper()
	for _, c := range conns {
		c.SetDeadline(time.Now().Add(soon))
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	must(t, resume())
	for _, c := range conns {
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
	}
}

// childOf returns the only child of a process.
func childOf(t *testing.T, parent int) *os.Process {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", parent))
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatalf("the children of %d are %q", parent, text)
	}
	p, err := os.FindProcess(child)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// stop stops every thread of a process.
func stop(t *testing.T, p *os.Process) {
	must(t, p.Signal(unix.SIGSTOP))
	await.Until(t, "the server stops", func() bool {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
		if err != nil || len(tasks) == 0 {
			t.Fatal("no threads", err)
		}
		return !slices.ContainsFunc(tasks, runs)
	})
}

// runs reports whether a thread exists and is not stopped.
func runs(stat string) bool {
	text, err := os.ReadFile(stat)
	_, state, _ := strings.Cut(string(text), ") ")
	return err == nil && !strings.HasPrefix(state, "T")
}

// Requests allocate nothing, with the clock and labels and without.
func TestStatsAllocateNothing(t *testing.T) {
	for _, s := range []*server.Server[struct{}]{{Handler: plain{}}, {Handler: plain{}, TimeCalls: true, Name: "n"}} {
		l := listen(t)
		done := make(chan error)
		go func() { done <- s.Serve(l) }()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		b := []byte("x")
		request := func() {
			c.Write(b)
			if _, err := io.ReadFull(c, b); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			request()
		}
		if n := testing.AllocsPerRun(2000, request); n != 0 {
			t.Errorf("TimeCalls %t: %v allocations per request", s.TimeCalls, n)
		}
		c.Close()
		s.Close()
		<-done
		s.Shutdown(t.Context())
	}
}
