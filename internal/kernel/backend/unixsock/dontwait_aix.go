package unixsock

import "golang.org/x/sys/unix"

const dontWait = unix.MSG_NONBLOCK
