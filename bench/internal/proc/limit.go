package proc

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// RaiseFiles raises the limit of open files to want, or as far as it is allowed, and returns the limit. Processes that
// are started later inherit it.
func RaiseFiles(want uint64) (uint64, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, err
	}
	if l.Cur >= want {
		return l.Cur, nil
	}
	raised := unix.Rlimit{Cur: want, Max: max(want, l.Max)}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) != nil { // not allowed: raise it to the hard limit
		raised = unix.Rlimit{Cur: min(want, l.Max), Max: l.Max}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &raised); err != nil {
			return l.Cur, err
		}
	}
	return raised.Cur, nil
}

// CPUs returns the processors that this process may use.
func CPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	var cpus []int
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus, nil
}

// Touch runs for a moment on each of these processors, which makes the scheduler update the run time of the thread that
// ran there. Otherwise it does so only at its ticks.
func Touch(cpus []int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for _, cpu := range cpus {
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return err
		}
	}
	return unix.SchedSetaffinity(0, &all)
}
