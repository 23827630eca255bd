// Package proc starts the processes of a run and reads what they use.
package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Usage is what the threads of a process have used so far.
type Usage struct {
	runtime  map[string]int64 // nanoseconds the scheduler ran it, by thread
	switches map[string]int64 // voluntary and not, by thread
}

// Read reads the usage of a process.
func Read(pid int) (Usage, error) {
	u := Usage{map[string]int64{}, map[string]int64{}}
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
		thread := filepath.Base(dir)
		if u.runtime[thread], err = parseSchedstat(string(sched)); err != nil {
			return u, err
		}
		if u.switches[thread], err = parseSwitches(string(status)); err != nil {
			return u, err
		}
	}
	if len(u.runtime) == 0 {
		return u, fmt.Errorf("process %d: no thread with scheduler statistics", pid)
	}
	return u, nil
}

// Since returns the nanoseconds and context switches since an earlier usage. It fails if a thread has ended in between,
// because its figures are lost.
func (u Usage) Since(before Usage) (runtime, switches int64, err error) {
	for thread := range maps.Keys(before.runtime) {
		if _, ok := u.runtime[thread]; !ok {
			return 0, 0, fmt.Errorf("thread %s ended during the measurement", thread)
		}
	}
	for thread, ns := range u.runtime {
		runtime += ns - before.runtime[thread]
		switches += u.switches[thread] - before.switches[thread]
	}
	return runtime, switches, nil
}

// parseSchedstat returns the run time, the first field.
func parseSchedstat(s string) (int64, error) {
	fields := strings.Fields(s)
	if len(fields) != 3 {
		return 0, fmt.Errorf("schedstat %q: want three fields", s)
	}
	return strconv.ParseInt(fields[0], 10, 64)
}

// parseSwitches returns the sum of both kinds.
func parseSwitches(status string) (int64, error) {
	a, err1 := field(status, "voluntary_ctxt_switches")
	b, err2 := field(status, "nonvoluntary_ctxt_switches")
	return a + b, errors.Join(err1, err2)
}

// field returns the number in a line of a status file.
func field(status, name string) (int64, error) {
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(line, ":")
		if key == name {
			number, _, _ := strings.Cut(strings.TrimSpace(value), " ")
			return strconv.ParseInt(number, 10, 64)
		}
	}
	return 0, fmt.Errorf("no %s in the status of the process", name)
}

// Anonymous returns the anonymous memory of a process in bytes: its heap and stacks.
func Anonymous(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	kib, err := field(string(status), "RssAnon")
	return kib << 10, err
}
