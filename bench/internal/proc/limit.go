package proc

import (
	"errors"
	"fmt"
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
	want = max(want, l.Cur)
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: want, Max: max(want, l.Max)}) == nil {
		return want, nil
	}
	l.Cur = min(want, l.Max) // more is not allowed
	return l.Cur, unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
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
	for i := range cpus {
		if err := on(cpus[i:i+1], func() error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// on calls f on a thread that runs on these processors alone.
func on(cpus []int, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("processors %v: %w", cpus, err)
	}
	return errors.Join(f(), unix.SchedSetaffinity(0, &before))
}
