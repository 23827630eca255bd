//go:build darwin || dragonfly || freebsd || openbsd

package kqueue

import "golang.org/x/sys/unix"

// receipt makes the kernel return a step that succeeded too.
const receipt = unix.EV_RECEIPT
