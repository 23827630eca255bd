package unixsock

import "golang.org/x/sys/unix"

const rdhup = unix.POLLRDHUP
