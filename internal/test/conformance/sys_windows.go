package conformance

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/internal/test/wine"
)

// What WSAPoll tells. It may be asked for readiness only; the rest always comes.
const (
	pollIn     = 0x0100
	pollUrgent = 0x0200
	pollOut    = 0x0010
	pollErr    = 0x0001
	pollHup    = 0x0002
)

// A state is conditions that settle waits for.
type state = int16

const (
	stateIn         int16 = pollIn
	stateOut        int16 = pollOut
	stateErr        int16 = pollErr
	stateUrgent     int16 = pollUrgent
	statePeerClosed int16 = pollHup
	stateDead       int16 = pollHup
)

var (
	ws2     = windows.NewLazySystemDLL("ws2_32.dll")
	wsaPoll = ws2.NewProc("WSAPoll")
	wsSend  = ws2.NewProc("send")
)

// tellsLate says that a port need not have been told yet of what settle has waited for.
var tellsLate = wine.CompletesLate.Here()

func init() {
	if wine.ForgetsReset.Here() {
		errReset = endOfStream // to a receive
	}
}

// settle waits until all of these states hold of a socket, so that a port must know of them, or is
// about to be told (tellsLate).
func settle(e *env, s handle, states state) {
	e.Helper()
	e.until("the socket's state has arrived", func() bool {
		got := polled(s.Handle())
		switch {
		case got&pollErr != 0:
			got |= pollHup // of a reset
		case wine.HidesEnd.Here() && got&pollIn != 0 && states&pollHup != 0:
			// Below Wine is a Linux, whose loopback delivers before the sender's call returns.
			got |= pollHup
		case isDatagram(s.Handle()) && got&pollIn != 0:
			got |= pollErr // which ends a receive, and is no other state
		}
		return got&states == states
	})
}

func polled(h uintptr) int16 {
	f := struct {
		socket  uintptr
		events  int16
		revents int16
	}{h, pollIn | pollUrgent | pollOut, 0}
	if n, _, _ := syscall.SyscallN(wsaPoll.Addr(), uintptr(unsafe.Pointer(&f)), 1, 0); int32(n) < 1 {
		return 0
	}
	return f.revents
}

const soType = 0x1008

func isDatagram(h uintptr) bool {
	t, err := windows.GetsockoptInt(windows.Handle(h), windows.SOL_SOCKET, soType)
	return err == nil && t == windows.SOCK_DGRAM
}

func isOpen(h uintptr) bool {
	_, err := windows.GetsockoptInt(windows.Handle(h), windows.SOL_SOCKET, soType)
	return err == nil
}

func (e *env) packets() (a, b fd) { panic("Unix sequenced packets are for Unix") }

// closeFD closes a socket now.
func (e *env) closeFD(f fd) {
	e.Helper()
	e.mustDo("closesocket", windows.Closesocket(windows.Handle(f)))
}

// dup makes a second handle of a socket; the case closes it.
func (e *env) dup(s handle) fd {
	e.Helper()
	h, err := handles.Dup(s.Handle())
	e.mustDo("duplicate", err)
	return fd(h)
}

var spares = handles.NewSpares()

// become makes a number name the socket that another names, closing what it named before, if
// anything. The case closes it.
func (e *env) become(number uintptr, s handle) fd {
	const tries = 500
	f := e.tryBecome(number, s, tries)
	if f.Handle() != number {
		e.closeFD(f)
		e.Skipf("handle %#x does not come back: it is that of a %q", number, handles.Type(number))
	}
	return f
}

// tryBecome is become that makes another handle where the number does not come back: another
// thread, perhaps the runtime's, has got it for something else.
func (e *env) tryBecome(number uintptr, s handle, tries int) fd {
	e.Helper()
	if isOpen(number) {
		e.closeFD(fd(number))
	}
	h, err := spares.DupAt(s.Handle(), number, tries)
	e.mustDo("duplicate", err)
	return fd(h)
}

func (e *env) sendRaw(what string, s handle, data []byte, flags uintptr) {
	r, _, err := syscall.SyscallN(wsSend.Addr(), s.Handle(), uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)), flags)
	if int32(r) != int32(len(data)) {
		e.Fatalf("%s: %v", what, err)
	}
}

// sendUrgent sends a byte of urgent data.
func (e *env) sendUrgent(s handle) {
	const msgOOB = 1
	e.sendRaw("urgent data", s, []byte{'!'}, msgOOB)
}

// sendEmpty sends an empty datagram.
func (e *env) sendEmpty(s handle) {
	e.sendRaw("empty datagram", s, nil, 0)
}

func (e *env) write(s handle, data string) {
	e.sendRaw("send", s, []byte(data), 0)
}

// shutListener does nothing to a listener, which Windows does not let be shut down.
func (e *env) shutListener(s handle) {
	if err := windows.Shutdown(windows.Handle(s.Handle()), windows.SHUT_RDWR); err != windows.WSAENOTCONN {
		e.Fatalf("shutdown: %v; want %v", err, windows.WSAENOTCONN)
	}
}

// noSockets opens handles that are no sockets, and says what each is. They are closed at the end.
func (e *env) noSockets() map[string]fd {
	all := map[string]fd{}
	e.Cleanup(func() {
		for _, f := range all {
			windows.CloseHandle(windows.Handle(f))
		}
	})
	add := func(what string, h windows.Handle, err error) {
		e.mustDo(what, err)
		all[what] = fd(h)
	}
	var r, w windows.Handle
	err := windows.CreatePipe(&r, &w, nil, 0)
	add("pipe", r, err)
	add("pipe end", w, err)
	h, err := windows.CreateEvent(nil, 0, 0, nil)
	add("event", h, err)
	h, err = windows.CreateIoCompletionPort(windows.InvalidHandle, 0, 0, 0)
	add("completion port", h, err)
	for what, name := range map[string]string{"file": os.Args[0], "device": "NUL"} {
		path, err := windows.UTF16PtrFromString(name)
		e.mustDo(what, err)
		h, err = windows.CreateFile(path, windows.GENERIC_READ, windows.FILE_SHARE_READ, nil, windows.OPEN_EXISTING, 0, 0)
		add(what, h, err)
	}
	return all
}

// The system's errors: the same for a handle that is not open as for what is no socket.
var (
	errNotOpen  error = windows.WSAENOTSOCK
	errNoSocket error = windows.WSAENOTSOCK
	errRefused  error = windows.WSAECONNREFUSED
	errReset    error = windows.WSAECONNRESET
)
