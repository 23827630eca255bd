package proc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

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
		var c *Calls
		if c, err = countCalls(pid, id); !errors.Is(err, errThreads) {
			return c, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, err
}

var errThreads = errors.New("the process keeps creating threads")

func countCalls(pid int, id uint64) (*Calls, error) {
	before, err := threads(pid)
	if err != nil {
		return nil, err
	}
	c := &Calls{}
	for _, tid := range before {
		attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Bits: unix.PerfBitInherit}
		attr.Size = uint32(binary.Size(attr))
		fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("perf_event_open: %w", err)
		}
		c.fds = append(c.fds, fd)
	}
	after, err := threads(pid)
	if err == nil && !slices.Equal(before, after) {
		err = errThreads
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
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
	c.fds = nil
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

// threads returns the threads of a process, in an order that is the same each time.
func threads(pid int) (tids []int, err error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, e := range entries {
		tid, wrong := strconv.Atoi(e.Name())
		tids, err = append(tids, tid), errors.Join(err, wrong)
	}
	return tids, err
}
