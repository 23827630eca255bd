//go:build unix && !linux && !aix

package sockettest

import "golang.org/x/sys/unix"

const dontWait = unix.MSG_DONTWAIT
