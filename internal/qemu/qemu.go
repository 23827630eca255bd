// Package qemu lists the deviations of qemu-user, which runs programs of another processor on this machine's kernel, from
// Linux. A test that behaves differently under qemu must name a deviation from this list.
package qemu

// A Deviation describes a behavior of qemu-user that deviates from Linux.
type Deviation string

// qemu-user translates system calls, and knows neither all of them nor all of their options and structures.
const (
	HidesTCPInfo  Deviation = "qemu returns only the first bytes of TCP_INFO"
	CutsBatch     Deviation = "qemu ends a sendmmsg that does not block when the thread gets a signal"
	BreaksNetlink Deviation = "qemu does not translate netlink's list of interfaces to the other byte order"
	HasNoCookie   Deviation = "qemu does not know getsockopt(SO_COOKIE)"
	HasNoRing     Deviation = "qemu does not know io_uring"
)

// Here reports whether the deviation applies to this process: whether it runs under a qemu-user that deviates.
func (d Deviation) Here() bool { return emulated() && probed()[d] }
