// Package proc starts the processes of a run and reads what they use.
package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	dirs, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
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
		first, _, _ := strings.Cut(string(sched), " ")
		runtime, err1 := strconv.ParseInt(first, 10, 64)
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
