package model

import (
	"net/netip"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/sock"
)

var (
	ws2     = windows.NewLazySystemDLL("ws2_32.dll")
	wsaPoll = ws2.NewProc("WSAPoll")
	wsSend  = ws2.NewProc("send")
)

// poll asks WSAPoll, without waiting.
func poll(fd int) (s state) {
	const in, urgent, out, err, hup = 0x100, 0x200, 0x10, 0x1, 0x2
	f := struct {
		socket  uintptr
		events  int16
		revents int16
	}{uintptr(fd), in | urgent | out, 0}
	if n, _, _ := syscall.SyscallN(wsaPoll.Addr(), uintptr(unsafe.Pointer(&f)), 1, 0); int32(n) < 1 {
		return 0
	}
	for _, t := range [...]struct {
		bit int16
		is  state
	}{
		{in, stateIn}, {out, stateOut}, {urgent, stateUrgent},
		{err, stateErr | stateEnded | stateDead}, // a reset, or what a datagram met
		{hup, stateEnded},
	} {
		if f.revents&t.bit != 0 {
			s |= t.is
		}
	}
	return s
}

func sendUrgent(fd uintptr) error {
	const oob = 1
	b := [1]byte{1}
	r, _, err := syscall.SyscallN(wsSend.Addr(), fd, uintptr(unsafe.Pointer(&b)), 1, oob)
	if int32(r) < 0 {
		return err
	}
	return nil
}

// sources spreads connections over the loopback addresses, because closed ones use up ports.
var sources atomic.Uint32

// source returns the address that a connection is made from.
func source() netip.AddrPort {
	n := sources.Add(1)
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, byte(1 + n>>8%200), byte(1 + n%250)}), 0)
}

func spare(*sock.Socket) {}

const noSocket = 1 << 20 // no handle

var spares = handles.NewSpares()

// moved makes another number name a socket, if it can the one that is given.
func moved(fd uintptr, num int) int {
	tries := 20
	if num == 0 || num == noSocket {
		tries = 1
	}
	return int(must(spares.DupAt(fd, uintptr(num), tries)))
}

// duplicate makes another number name a socket.
func duplicate(fd uintptr) uintptr { return must(handles.Dup(fd)) }

// replaced closes a number, and makes it name another socket if it comes back.
func replaced(num int, fd uintptr) int {
	check(windows.Closesocket(windows.Handle(num)))
	return moved(fd, num)
}

// occupy makes a number that was just closed name something that is no socket. It returns nil if it cannot: something has
// taken the number, a thread of the runtime or, under Wine 10, something without a type.
func occupy(num int) (letGo func()) {
	const tries = 4096 // no process has as many handles free below the number
	var others []windows.Handle
	defer func() {
		for _, h := range others {
			windows.CloseHandle(h)
		}
	}()
	for len(others) < tries && handles.Type(uintptr(num)) == "" {
		h := must(windows.CreateEvent(nil, 0, 0, nil))
		if h == windows.Handle(num) {
			return func() { windows.CloseHandle(h) }
		}
		others = append(others, h)
	}
	return nil
}

const countEach = false
