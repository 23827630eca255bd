//go:build unix

package fdstate

import "golang.org/x/sys/unix"

func closeHandle(h uintptr) error { return unix.Close(int(h)) }
