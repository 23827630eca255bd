package sock

import (
	"net/netip"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	reusePort = unix.SO_REUSEPORT

	keepIdle     = unix.TCP_KEEPIDLE
	keepInterval = unix.TCP_KEEPINTVL
	keepCount    = unix.TCP_KEEPCNT

	// The packet info of IPv4 is the index of the interface, the address to answer from, and the one that a datagram was sent
	// to, which may be that of a group.
	recvPacketInfo4 = unix.IP_PKTINFO
	packetInfo4     = unix.IP_PKTINFO
	sizePacketInfo4 = 4 + 4 + 4
	source4         = 4
	destination4    = 8
)

// sysAccept uses the scheduler, because creating a socket takes longer and takes locks of the process.
func sysAccept(h uintptr) (uintptr, error) {
	for {
		fd, _, e := unix.Syscall6(unix.SYS_ACCEPT4, h, 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		switch e {
		case unix.EINTR, unix.ECONNABORTED:
		case unix.EPROTO, unix.ENETDOWN, unix.ENETUNREACH, unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.ENOPROTOOPT, unix.ENONET:
			// The pending error of this connection (accept(2)): accept the next one.
		default:
			return fd, blockedOr(e)
		}
	}
}

func isTCP(fd int) bool {
	proto, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	return err == nil && proto == unix.IPPROTO_TCP
}

// sysAcceptable asks poll(2). It also returns true for errors, which accept then reports.
func sysAcceptable(h uintptr) bool {
	f := unix.PollFd{Fd: int32(h), Events: unix.POLLIN}
	var now unix.Timespec
	n, _, e := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&f)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return n != 0 || e != 0
}

type (
	rawAny   = unix.RawSockaddrAny
	rawInet4 = unix.RawSockaddrInet4
	rawInet6 = unix.RawSockaddrInet6
)

const (
	afInet4   = unix.AF_INET
	afInet6   = unix.AF_INET6
	errNoAddr = unix.EDESTADDRREQ
)

// withAddr calls f with the system's representation of a.
func withAddr(a netip.AddrPort, f func(sa unsafe.Pointer, size uintptr) unix.Errno) error {
	var sa unix.RawSockaddrAny
	size, err := encode(a, &sa)
	if err != nil {
		return err
	}
	return blockedOr(f(unsafe.Pointer(&sa), size))
}

func sysBind(h uintptr, a netip.AddrPort) error {
	return withAddr(a, func(sa unsafe.Pointer, size uintptr) unix.Errno {
		_, _, e := unix.Syscall(unix.SYS_BIND, h, uintptr(sa), size)
		return e
	})
}

func sysConnect(h uintptr, a netip.AddrPort) error {
	return withAddr(a, func(sa unsafe.Pointer, size uintptr) unix.Errno {
		_, _, e := unix.Syscall(unix.SYS_CONNECT, h, uintptr(sa), size)
		return e
	})
}

func sysLocalAddr(h uintptr) netip.AddrPort  { return name(unix.SYS_GETSOCKNAME, h) }
func sysRemoteAddr(h uintptr) netip.AddrPort { return name(unix.SYS_GETPEERNAME, h) }

func name(trap, h uintptr) netip.AddrPort {
	var sa unix.RawSockaddrAny
	size := uint32(unix.SizeofSockaddrAny)
	if _, _, e := unix.RawSyscall(trap, h, uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size))); e != 0 {
		return netip.AddrPort{}
	}
	return decode(&sa)
}

// The calls in this file use RawSyscall, which does not notify Go's scheduler. That is safe because the descriptors
// are non-blocking and the sizes are bounded, so the calls are short. It is worthwhile because notifying the
// scheduler costs as much as a small receive.

// blockedOr converts an error number to an error: ErrWouldBlock if the call would block, nil for 0.
func blockedOr(e unix.Errno) error {
	switch e {
	case 0:
		return nil
	case unix.EAGAIN, unix.EINPROGRESS:
		return ErrWouldBlock
	}
	return e
}

func sysRecv(h uintptr, b []byte) (int, error) {
	n, e := recvOnce(h, b)
	if e != 0 {
		return recvAgain(h, b, e)
	}
	return int(n), nil
}

func sysSend(h uintptr, b []byte) (int, error) {
	n, e := sendOnce(h, b)
	if e != 0 {
		return sendAgain(h, b, e)
	}
	return int(n), nil
}

// recvOnce and sendOnce must be small enough to be inlined (see Socket.send).
func recvOnce(h uintptr, b []byte) (n uintptr, e ioError) {
	kernelWrites(b)
	n, _, e = syscall.RawSyscall6(unix.SYS_RECVFROM, h, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	return
}

func sendOnce(h uintptr, b []byte) (n uintptr, e ioError) {
	kernelReads(b)
	n, _, e = syscall.RawSyscall6(unix.SYS_SENDTO, h, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
	return
}

type ioError = unix.Errno

func ioFailed(e ioError) bool { return e != 0 }

// recvAgain and sendAgain handle the error of a failed call: they repeat an interrupted call.
func recvAgain(h uintptr, b []byte, e ioError) (int, error) {
	if e == unix.EINTR {
		return sysRecv(h, b)
	}
	return 0, blockedOr(e)
}

func sendAgain(h uintptr, b []byte, e ioError) (int, error) {
	if e == unix.EINTR {
		return sysSend(h, b)
	}
	return 0, blockedOr(e)
}

// maxVec is the maximum number of buffers of one SendV.
const maxVec = 64

func sysSendV(h uintptr, bufs [][]byte, stream bool) (int, error) {
	var vec [maxVec]unix.Iovec
	n, left := 0, maxIO
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		if stream && (n == maxVec || left == 0) {
			break
		}
		if n == maxVec {
			return 0, unix.EMSGSIZE // a part of a message would be a different message
		}
		if stream {
			b = b[:min(len(b), left)]
			left -= len(b)
		}
		kernelReads(b)
		vec[n].Base = unsafe.SliceData(b)
		vec[n].SetLen(len(b))
		n++
	}
	if n == 0 && stream {
		return 0, nil
	}
	msg := unix.Msghdr{Iov: &vec[0]}
	msg.SetIovlen(max(n, 1)) // send an empty datagram with one empty buffer: some sockets refuse a message without buffers
	for {
		sent, _, e := unix.RawSyscall(unix.SYS_SENDMSG, h, uintptr(unsafe.Pointer(&msg)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		if e != unix.EINTR {
			return int(sent), blockedOr(e)
		}
	}
}

// sysSendFile uses the scheduler, because reading the file may block.
func sysSendFile(h uintptr, f *os.File, offset int64, n int) (sent int, err error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := rc.Control(func(file uintptr) {
		for {
			at := offset
			sent, err = unix.Sendfile(int(h), int(file), &at, n)
			if err != unix.EINTR {
				return
			}
		}
	})
	if cerr != nil {
		return 0, os.ErrClosed // cerr means that f is closed, but does not wrap os.ErrClosed
	}
	if e, ok := err.(unix.Errno); ok {
		return 0, blockedOr(e)
	}
	return sent, err
}

func sysRecvFrom(h uintptr, b []byte) (int, netip.AddrPort, error) {
	var sa unix.RawSockaddrAny
	size := uint32(unix.SizeofSockaddrAny)
	kernelWrites(b)
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, h, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT,
			uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)))
		switch e {
		case unix.EINTR:
		case 0:
			return int(n), decode(&sa), nil
		default:
			return 0, netip.AddrPort{}, blockedOr(e)
		}
	}
}

func sysSendTo(h uintptr, b []byte, to netip.AddrPort) error {
	var sa unix.RawSockaddrAny
	size, err := encode(to, &sa)
	if err != nil {
		return err
	}
	kernelReads(b)
	for {
		_, _, e := unix.RawSyscall6(unix.SYS_SENDTO, h, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT,
			uintptr(unsafe.Pointer(&sa)), size)
		if e != unix.EINTR {
			return blockedOr(e)
		}
	}
}

// mmsghdr is struct mmsghdr of recvmmsg(2) and sendmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// A batch is the memory that describes messages to the kernel. It refers to the caller's buffers only during a call.
type batch struct {
	hdrs  [MaxBatch]mmsghdr
	vecs  [MaxBatch]unix.Iovec
	addrs [MaxBatch]unix.RawSockaddrAny
	infos [MaxBatch]control
}

var batches = sync.Pool{New: func() any {
	b := new(batch)
	for i := range b.hdrs {
		b.hdrs[i].hdr.Iov = &b.vecs[i]
		b.hdrs[i].hdr.SetIovlen(1)
	}
	return b
}}

func (b *batch) setBuffer(i int, buf []byte) {
	b.vecs[i].Base = unsafe.SliceData(buf)
	b.vecs[i].SetLen(len(buf))
}

// setControl gives message i a number of bytes for control messages.
func (b *batch) setControl(i, size int) {
	hdr := &b.hdrs[i].hdr
	hdr.SetControllen(size)
	if hdr.Control = nil; size > 0 {
		hdr.Control = (*byte)(unsafe.Pointer(&b.infos[i]))
	}
}

// call makes the system call for n messages and returns the number of messages that were received or sent.
func (b *batch) call(trap, h uintptr, n int, flags uintptr) (int, error) {
	for {
		done, _, e := unix.RawSyscall6(trap, h, uintptr(unsafe.Pointer(&b.hdrs[0])), uintptr(n), flags, 0, 0)
		if e != unix.EINTR {
			for i := range n {
				b.vecs[i].Base = nil
			}
			return int(done), blockedOr(e)
		}
	}
}

func sysRecvBatch(h uintptr, msgs []Message, info bool) (int, error) {
	b := batches.Get().(*batch)
	defer batches.Put(b)
	size := 0
	if info {
		size = int(unsafe.Sizeof(b.infos[0]))
	}
	for i := range msgs {
		b.setControl(i, size)
		kernelWrites(msgs[i].Buf)
		b.setBuffer(i, msgs[i].Buf)
		b.addrs[i].Addr.Family = unix.AF_UNSPEC
		b.hdrs[i].hdr.Name = (*byte)(unsafe.Pointer(&b.addrs[i]))
		b.hdrs[i].hdr.Namelen = unix.SizeofSockaddrAny
	}
	n, err := b.call(unix.SYS_RECVMMSG, h, len(msgs), unix.MSG_DONTWAIT)
	if err != nil {
		return 0, err
	}
	for i := range n {
		m := &msgs[i]
		m.N, m.Addr, m.Local = int(b.hdrs[i].n), decode(&b.addrs[i]), netip.Addr{}
		if info {
			m.Local = b.infos[i].local(int(b.hdrs[i].hdr.Controllen), m.Addr.Addr())
		}
	}
	return n, nil
}

// setAddrs sets where message i goes, and where it leaves from.
func (b *batch) setAddrs(i int, m *Message) error {
	hdr := &b.hdrs[i].hdr
	hdr.Name, hdr.Namelen = nil, 0
	if m.Addr != (netip.AddrPort{}) {
		size, err := encode(m.Addr, &b.addrs[i])
		if err != nil {
			return err
		}
		hdr.Name, hdr.Namelen = (*byte)(unsafe.Pointer(&b.addrs[i])), uint32(size)
	}
	size := 0
	if m.Local.IsValid() {
		var err error
		if size, err = b.infos[i].put(m.Local); err != nil {
			return err
		}
	}
	b.setControl(i, size)
	return nil
}

func sysSendBatch(h uintptr, msgs []Message) (int, error) {
	b := batches.Get().(*batch)
	defer batches.Put(b)
	for i := range msgs {
		if err := b.setAddrs(i, &msgs[i]); err != nil {
			if i == 0 {
				return 0, err
			}
			msgs = msgs[:i] // the next call returns the error
			break
		}
		kernelReads(msgs[i].Buf)
		b.setBuffer(i, msgs[i].Buf)
	}
	n, err := b.call(unix.SYS_SENDMMSG, h, len(msgs), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	if err != nil {
		return 0, err
	}
	for i := range n {
		msgs[i].N = int(b.hdrs[i].n)
	}
	return n, nil
}
