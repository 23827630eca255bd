package psn

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/winsock"
)

// New opens a Poller. It returns the error of Supported, if any.
func New() (backend.Poller, error) {
	if err := Supported(); err != nil {
		return nil, err
	}
	return NewOn(native)
}

// Supported returns nil if this Windows can use the backend, and otherwise an error that wraps
// errors.ErrUnsupported: the function is missing, or lacks behaviour that the backend relies on. A build number
// would not show the latter.
var Supported = sync.OnceValue(func() error {
	for _, proc := range []*windows.LazyProc{process(), wsaPoll, compare} {
		if proc.Find() != nil {
			return fmt.Errorf("this Windows has no %s: %w", proc.Name, errors.ErrUnsupported)
		}
	}
	if err := winsock.Start(); err != nil {
		return fmt.Errorf("WSAStartup: %w: %w", errors.ErrUnsupported, err)
	}
	return Probe(native)
})

var (
	ws2_32  = windows.NewLazySystemDLL("ws2_32.dll")
	wsaPoll = ws2_32.NewProc("WSAPoll")
	compare = windows.NewLazySystemDLL("kernelbase.dll").NewProc("CompareObjectHandles")
)

// process returns the function. It is in mswsock.dll, and some versions of ws2_32.dll export it too.
var process = sync.OnceValue(func() *windows.LazyProc {
	const name = "ProcessSocketNotifications"
	if proc := ws2_32.NewProc(name); proc.Find() == nil {
		return proc
	}
	return windows.NewLazySystemDLL("mswsock.dll").NewProc(name)
})

var native = &System{
	Process:   processSocketNotifications,
	OpenPort:  openPort,
	ClosePort: func(port uintptr) error { return windows.CloseHandle(windows.Handle(port)) },
	Post: func(port, key uintptr) error {
		return windows.PostQueuedCompletionStatus(windows.Handle(port), 0, key, nil)
	},
	Describe: winsock.Describe,
	PollOne:  pollOne,
	Pin:      pin,
	Same:     same,
	Unpin:    func(pin uintptr) { windows.CloseHandle(windows.Handle(pin)) },
	Datagram: datagram,
	Errno:    func(code uint32) error { return syscall.Errno(code) },
}

func processSocketNotifications(port uintptr, regs []Registration, timeout uint32, entries []Entry) (int, uint32) {
	var (
		reg   *Registration
		entry *Entry
		count *uint32
		n     uint32
	)
	if len(regs) > 0 {
		reg = &regs[0]
	}
	if len(entries) > 0 {
		entry, count = &entries[0], &n
	}
	code, _, _ := syscall.SyscallN(process().Addr(), port,
		uintptr(len(regs)), uintptr(unsafe.Pointer(reg)), uintptr(timeout),
		uintptr(len(entries)), uintptr(unsafe.Pointer(entry)), uintptr(unsafe.Pointer(count)))
	return int(n), uint32(code)
}

// openPort sets no limit of threads, because a goroutine may continue on a thread other than the one that dequeued.
func openPort() (uintptr, error) {
	port, err := windows.CreateIoCompletionPort(windows.InvalidHandle, 0, 0, 1<<32-1)
	return uintptr(port), err
}

// pollFD is a WSAPOLLFD.
type pollFD struct {
	fd              uintptr
	events, revents int16
}

func pollOne(handle uintptr) backend.Mask {
	kind, err := winsock.Describe(handle)
	if err != nil {
		return 0
	}
	one := pollFD{fd: handle, events: pollRdNorm | pollRdBand | pollWrNorm}
	n, _, _ := syscall.SyscallN(wsaPoll.Addr(), uintptr(unsafe.Pointer(&one)), 1, 0)
	if int32(n) <= 0 {
		return 0
	}
	return pollMask(one.revents, kind)
}

// pin duplicates the handle. Winsock does not know the duplicate, which is closed soon.
func pin(handle uintptr) (uintptr, error) {
	var pin windows.Handle
	self := windows.CurrentProcess()
	err := windows.DuplicateHandle(self, windows.Handle(handle), self, &pin, 0, false, windows.DUPLICATE_SAME_ACCESS)
	return uintptr(pin), err
}

func same(handle, pin uintptr) bool {
	r, _, _ := syscall.SyscallN(compare.Addr(), handle, pin)
	return int32(r) != 0
}

// datagram opens a UDP socket, bound to the loopback address if there is one.
func datagram() (handle uintptr, send func() error, release func(), err error) {
	s, err := windows.Socket(windows.AF_INET, windows.SOCK_DGRAM, 0)
	if err != nil {
		return 0, nil, nil, err
	}
	release = func() { windows.Closesocket(s) }
	if windows.Bind(s, &windows.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}) == nil {
		if self, err := windows.Getsockname(s); err == nil {
			send = func() error { return windows.Sendto(s, []byte{0}, 0, self) }
		}
	}
	return uintptr(s), send, release, nil
}
