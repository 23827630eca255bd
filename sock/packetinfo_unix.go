//go:build unix

package sock

import (
	"errors"

	"golang.org/x/sys/unix"
)

type cmsghdr = unix.Cmsghdr

func cmsgLen(size int) int        { return unix.CmsgLen(size) }
func cmsgSpace(size int) int      { return unix.CmsgSpace(size) }
func setLen(head *cmsghdr, n int) { head.SetLen(n) }

const (
	packetInfo6 = unix.IPV6_PKTINFO
	// An IPv6 socket takes the packet info of IPv6 for IPv4-mapped addresses too.
	mapped4 = false
)

// sysPacketInfo asks for the packet info of the socket's family. Some systems take the other's option too.
func sysPacketInfo(h uintptr, on bool) error {
	if sizePacketInfo4 == 0 {
		return errors.ErrUnsupported
	}
	if sysLocalAddr(h).Addr().Is6() {
		return setFlag(h, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, on)
	}
	return setFlag(h, unix.IPPROTO_IP, recvPacketInfo4, on)
}
