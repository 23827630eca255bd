package sock

import (
	"net/netip"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

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

func sysRecvBatch(h uintptr, msgs []Message) (int, error) {
	b := batches.Get().(*batch)
	defer batches.Put(b)
	for i := range msgs {
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
		msgs[i].N, msgs[i].Addr = int(b.hdrs[i].n), decode(&b.addrs[i])
	}
	return n, nil
}

func sysSendBatch(h uintptr, msgs []Message) (int, error) {
	b := batches.Get().(*batch)
	defer batches.Put(b)
	for i := range msgs {
		b.hdrs[i].hdr.Name, b.hdrs[i].hdr.Namelen = nil, 0
		if msgs[i].Addr != (netip.AddrPort{}) {
			size, err := encode(msgs[i].Addr, &b.addrs[i])
			if err != nil {
				if i == 0 {
					return 0, err
				}
				msgs = msgs[:i] // the next call returns the error
				break
			}
			b.hdrs[i].hdr.Name = (*byte)(unsafe.Pointer(&b.addrs[i]))
			b.hdrs[i].hdr.Namelen = uint32(size)
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
