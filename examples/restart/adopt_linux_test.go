package main

import (
	"testing"

	"golang.org/x/sys/unix"
)

func init() {
	adopt = func(t *testing.T) func(int) {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		return func(pid int) {
			var err error
			for err = unix.EINTR; err == unix.EINTR; {
				_, err = unix.Wait4(pid, nil, 0, nil)
			}
			if err != nil {
				t.Errorf("waiting for %d: %v", pid, err)
			}
		}
	}
}
