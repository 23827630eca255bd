package qemu

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// emulated reports whether qemu-user runs this program. It translates /proc/self/exe, and not this link.
var emulated = sync.OnceValue(func() bool {
	program, err := os.Readlink("/proc/thread-self/exe")
	return err == nil && strings.HasPrefix(filepath.Base(program), "qemu-")
})

// probed returns the results of all probes. It makes all of them at once, so that none opens descriptors in the middle of
// a test that counts them.
var probed = sync.OnceValue(func() map[Deviation]bool {
	found := make(map[Deviation]bool)
	for d, probe := range probes {
		found[d] = probe()
	}
	return found
})

var probes = map[Deviation]func() bool{
	HidesTCPInfo:  hidesTCPInfo,
	CutsBatch:     cutsBatch,
	BreaksNetlink: breaksNetlink,
	HasNoCookie:   hasNoCookie,

	MisnumbersErrors: misnumbersErrors,

	StartsNoProgram: startsNoProgram,
}

func must[T any](v T, err error) T {
	if err != nil {
		panic("qemu: a probe cannot be made: " + err.Error())
	}
	return v
}

// hidesTCPInfo asks for the backlog of a listener, which the kernel returns in the field of the packets acknowledged out of
// order.
func hidesTCPInfo() bool {
	const backlog = 7
	l := must(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	defer unix.Close(l)
	must(0, unix.Listen(l, backlog))
	return must(unix.GetsockoptTCPInfo(l, unix.IPPROTO_TCP, unix.TCP_INFO)).Sacked != backlog
}

// cutsBatch sends batches of datagrams while the thread gets signals that Go's runtime ignores. On Linux the batches are
// complete, because a send that does not block does not look for signals.
func cutsBatch() bool {
	const (
		size     = 64
		attempts = 2000
	)
	to := must(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))
	defer unix.Close(to)
	must(0, unix.Bind(to, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	from := must(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))
	defer unix.Close(from)
	must(0, unix.Connect(from, must(unix.Getsockname(to))))

	var data [1]byte
	vec := unix.Iovec{Base: &data[0]}
	vec.SetLen(len(data))
	var msgs [size]struct {
		hdr  unix.Msghdr
		sent uint32
	}
	for i := range msgs {
		msgs[i].hdr.Iov = &vec
		msgs[i].hdr.SetIovlen(1)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	process, thread := unix.Getpid(), unix.Gettid()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Tgkill(process, thread, unix.SIGURG)
				time.Sleep(50 * time.Microsecond)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	for range attempts {
		// The receiver's buffer is soon full; the kernel then drops datagrams, which are sent nevertheless.
		n, _, e := unix.Syscall6(unix.SYS_SENDMMSG,
			uintptr(from), uintptr(unsafe.Pointer(&msgs[0])), size, unix.MSG_DONTWAIT, 0, 0)
		if e == 0 && n < size {
			return true
		}
	}
	return false
}

func breaksNetlink() bool {
	_, err := net.Interfaces()
	return err != nil
}

func hasNoCookie() bool {
	s := must(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	defer unix.Close(s)
	_, err := unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_COOKIE)
	return err != nil
}

// misnumbersErrors sends a datagram to a port that no socket has, which is refused.
func misnumbersErrors() bool {
	open := func() (fd int, at unix.Sockaddr) {
		fd = must(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))
		must(0, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
		return fd, must(unix.Getsockname(fd))
	}
	closed, unused := open()
	s, _ := open()
	defer unix.Close(s)
	must(0, unix.Connect(s, unused))
	unix.Close(closed)
	must(unix.Write(s, []byte{0}))
	must(unix.Poll([]unix.PollFd{{Fd: int32(s)}}, -1))
	return must(unix.GetsockoptInt(s, unix.SOL_SOCKET, unix.SO_ERROR)) != int(unix.ECONNREFUSED)
}

// startsNoProgram starts this program, a test, without any tests. With binfmt_misc it starts under qemu too.
func startsNoProgram() bool {
	err := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=^$").Run()
	return errors.Is(err, unix.ENOEXEC)
}
