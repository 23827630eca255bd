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

// openFiles returns the limit of open files, which package os raises when a program starts.
func openFiles() (now, most uint64) {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 0, 0
	}
	return uint64(l.Cur), uint64(l.Max)
}
