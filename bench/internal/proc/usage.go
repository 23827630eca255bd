// Package proc starts the processes of a run and reads what they use.
package proc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what each thread of a process has used so far, by its number.
type Usage map[string]used

type used struct {
	runtime  int64 // nanoseconds that the scheduler ran it
	switches int64 // voluntary and not
}

// Read reads the usage of a process.
func Read(pid int) (Usage, error) {
	u := Usage{}
	dirs, err := threads(pid)
	if err != nil {
		return u, err
	}
	for _, dir := range dirs {
		sched, err1 := os.ReadFile(filepath.Join(dir, "schedstat"))
		status, err2 := os.ReadFile(filepath.Join(dir, "status"))
		if err := errors.Join(err1, err2); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue // Since notices it
			}
			return u, err
		}
		var runtime int64
		_, err1 = fmt.Sscan(string(sched), &runtime)
		own, err2 := field(status, "voluntary_ctxt_switches")
		forced, err3 := field(status, "nonvoluntary_ctxt_switches")
		if err := errors.Join(err1, err2, err3); err != nil {
			return u, fmt.Errorf("%s: %w", dir, err)
		}
		u[filepath.Base(dir)] = used{runtime, own + forced}
	}
	if len(u) == 0 {
		return u, fmt.Errorf("process %d: no thread with scheduler statistics", pid)
	}
	return u, nil
}

// threads returns the folders of the threads of a process, in an order that is the same each time.
func threads(pid int) ([]string, error) {
	dirs, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if len(dirs) == 0 {
		err = errors.Join(err, fmt.Errorf("no process %d", pid))
	}
	return dirs, err
}

// Since returns the nanoseconds and context switches since an earlier usage. It fails if a thread has ended in between,
// because its figures are lost.
func (u Usage) Since(before Usage) (runtime, switches int64, err error) {
	for thread := range before {
		if _, ok := u[thread]; !ok {
			return 0, 0, fmt.Errorf("thread %s ended during the measurement", thread)
		}
	}
	for thread, now := range u {
		runtime += now.runtime - before[thread].runtime
		switches += now.switches - before[thread].switches
	}
	return runtime, switches, nil
}

// field returns the number in a line of a status file.
func field(status []byte, name string) (n int64, err error) {
	_, value, _ := strings.Cut("\n"+string(status), "\n"+name+":")
	if _, err = fmt.Sscan(value, &n); err != nil {
		err = fmt.Errorf("no %s in the status of the process: %w", name, err)
	}
	return n, err
}

// Anonymous returns the anonymous memory of a process in bytes: its heap and stacks.
func Anonymous(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	kib, err := field(status, "RssAnon")
	return kib << 10, err
}

// Calls counts the system calls of a running process, without a tool and without stopping it.
type Calls struct{ fds []int }

// CountCalls begins to count. If the process creates a thread at this moment, CountCalls tries again for a while, because
// it is unknown whether the new thread is counted with the one that created it.
func CountCalls(pid int) (*Calls, error) {
	id, err := tracepointID()
	if err != nil {
		return nil, err
	}
	const attempts = 100
	for range attempts {
		c := &Calls{}
		if err = c.open(pid, id); err == nil {
			return c, nil
		}
		c.Close()
		if !errors.Is(err, errThreads) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, err
}

var errThreads = errors.New("the process keeps creating threads")

// open begins to count the calls of every thread.
func (c *Calls) open(pid int, tracepoint uint64) error {
	before, err := threads(pid)
	if err != nil {
		return err
	}
	for _, dir := range before {
		tid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return err
		}
		attr := unix.PerfEventAttr{
			Type: unix.PERF_TYPE_TRACEPOINT, Config: tracepoint, Bits: unix.PerfBitInherit,
		}
		attr.Size = uint32(binary.Size(attr))
		fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			return fmt.Errorf("perf_event_open: %w", err)
		}
		c.fds = append(c.fds, fd)
	}
	after, err := threads(pid)
	if err == nil && !slices.Equal(before, after) {
		err = errThreads
	}
	return err
}

// Sum returns the number of calls so far, by all threads, including new ones.
func (c *Calls) Sum() (n uint64, err error) {
	for _, fd := range c.fds {
		var b [8]byte
		if _, err := unix.Read(fd, b[:]); err != nil {
			return 0, fmt.Errorf("read a count of system calls: %w", err)
		}
		n += binary.NativeEndian.Uint64(b[:])
	}
	return n, nil
}

// Close ends the counting.
func (c *Calls) Close() {
	for _, fd := range c.fds {
		unix.Close(fd)
	}
}

// tracepointID returns the number that this kernel has for a tracepoint which is hit at every entry
// into a system call.
func tracepointID() (uint64, error) {
	var failed error
	for _, dir := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		b, err := os.ReadFile(dir + "/events/raw_syscalls/sys_enter/id")
		if err == nil {
			return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		}
		failed = errors.Join(failed, err)
	}
	return 0, failed
}
