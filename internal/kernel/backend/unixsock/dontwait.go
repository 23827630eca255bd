//go:build unix && !aix

package unixsock

import "golang.org/x/sys/unix"

const dontWait = unix.MSG_DONTWAIT
