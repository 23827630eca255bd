// Package qemu lists the deviations of qemu-user, which runs programs of another processor on this machine's kernel, from
// Linux. A test that behaves differently under qemu must name a deviation from this list.
package qemu

import (
	"errors"
	"syscall"

	"github.com/socknotify/socknotify/internal/test/errno"
)

// A Deviation describes a behavior of qemu-user that deviates from Linux.
type Deviation string

// qemu-user translates system calls, and knows neither all of them nor all of their options and structures.
const (
	HidesTCPInfo  Deviation = "qemu returns only the first bytes of TCP_INFO"
	CutsBatch     Deviation = "qemu ends a sendmmsg that does not block when the thread gets a signal"
	BreaksNetlink Deviation = "qemu does not translate netlink's list of interfaces to the other byte order"
	HasNoCookie   Deviation = "qemu does not know getsockopt(SO_COOKIE)"

	MisnumbersErrors Deviation = "qemu does not translate the number that getsockopt(SO_ERROR) returns, which differs on mips"

	StartsNoProgram Deviation = "a program that qemu runs cannot start itself again, for the kernel does not know its format"
	TakesLong       Deviation = "qemu translates each instruction, so that ciphers and handshakes take ten times as long"
)

// Here reports whether the deviation applies to this process: whether it runs under a qemu-user that deviates. TakesLong is
// not probed, because a test must not measure time, and applies to every qemu.
func (d Deviation) Here() bool { return emulated() && (d == TakesLong || probed()[d]) }

// Is is errors.Is for errors that a socket may have reported by SO_ERROR.
func Is(err, want error) bool {
	number, ok := numbers[want]
	return errors.Is(err, want) || ok && MisnumbersErrors.Here() && errors.Is(err, number)
}

// numbers has the numbers that errors have on amd64 and arm64, which qemu returns untranslated.
var numbers = map[error]syscall.Errno{errno.Reset: 104, errno.Refused: 111}
