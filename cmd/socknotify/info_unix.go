//go:build unix

package main

import "golang.org/x/sys/unix"

func kernelVersion() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// openFiles is the limit that package os has raised at start, as it does for every program.
func openFiles() (now, most uint64) {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 0, 0
	}
	return uint64(l.Cur), uint64(l.Max)
}
