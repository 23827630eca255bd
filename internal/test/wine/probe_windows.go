package wine

import (
	"io"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/sock"
)

// Version returns the version of Wine, or "" on Windows.
var Version = sync.OnceValue(func() string {
	get := windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version")
	if get.Find() != nil {
		return ""
	}
	version, _, _ := syscall.SyscallN(get.Addr())
	return windows.BytePtrToString(*(**byte)(unsafe.Pointer(&version)))
})

func deviates(d Deviation) bool {
	found, probed := probed()[d]
	return found || !probed
}

// probed returns the results of all probes. It makes all of them at once, so that none opens handles in the middle of a
// test that counts them.
var probed = sync.OnceValue(func() map[Deviation]bool {
	found := make(map[Deviation]bool)
	for d, probe := range probes {
		found[d] = probe()
	}
	return found
})

// probes ask the system whether it deviates from Windows. They are for the deviations that are no races.
var probes = map[Deviation]func() bool{
	HidesEnd:       hidesEnd,
	TakesError:     takesError,
	ForgetsReset:   forgetsReset,
	KeepsPort:      keepsPort,
	ForgetsPeer:    forgetsPeer,
	CountsNoHandle: countsNoHandle,
	HasNoUnix:      hasNoUnix,
}

const (
	// patience is the time for what must happen on loopback, and a moment that for what only Windows does.
	patience = 10 * time.Second
	moment   = 200 * time.Millisecond
)

// within calls done until it returns true, and reports whether it did in that time.
func within(d time.Duration, done func() bool) bool {
	for end := time.Now().Add(d); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func must[T any](v T, err error) T {
	if err != nil && err != sock.ErrWouldBlock {
		panic("wine: a probe cannot be made: " + err.Error())
	}
	return v
}

// stream calls f with the two ends of a TCP connection.
func stream(f func(s, peer *sock.Socket)) {
	l := must(sock.ListenTCP(sock.Loopback, sock.ListenOptions{}))
	defer l.Close()
	peer := must(sock.New(sock.TCP4))
	defer peer.Close()
	must(0, peer.Connect(l.LocalAddr()))
	var s *sock.Socket
	within(patience, func() bool { s = must(l.Accept()); return s != nil })
	defer s.Close()
	f(s, peer)
}

// received receives into one byte as soon as that does not block.
func received(s *sock.Socket) (n int, err error) {
	err = sock.ErrWouldBlock
	within(patience, func() bool {
		n, err = s.Recv(make([]byte, 1))
		return err != sock.ErrWouldBlock
	})
	return n, err
}

func reset(peer *sock.Socket) {
	must(0, peer.SetLinger(0))
	must(0, peer.Close())
}

const (
	pollIn  = 0x0100
	pollHup = 0x0002
)

var wsaPoll = windows.NewLazySystemDLL("ws2_32.dll").NewProc("WSAPoll")

// polled returns what WSAPoll reports of a socket.
func polled(s *sock.Socket) int16 {
	f := struct {
		socket          uintptr
		events, revents int16
	}{socket: s.Handle(), events: pollIn}
	syscall.SyscallN(wsaPoll.Addr(), uintptr(unsafe.Pointer(&f)), 1, 0)
	return f.revents
}

func hidesEnd() (hidden bool) {
	stream(func(s, peer *sock.Socket) {
		must(peer.Send([]byte("x")))
		must(0, peer.Shutdown(sock.ShutWrite))
		within(patience, func() bool { return polled(s)&pollIn != 0 })
		hidden = !within(moment, func() bool { return polled(s)&pollHup != 0 })
	})
	return hidden
}

func takesError() bool {
	s, peer := must(sock.New(sock.UDP4)), must(sock.New(sock.UDP4))
	defer s.Close()
	must(0, peer.Bind(sock.Loopback))
	must(0, s.Connect(peer.LocalAddr()))
	peer.Close()
	must(s.Send([]byte("x")))
	return !within(moment, func() bool {
		polled(s)
		_, err := s.Recv(make([]byte, 1))
		return err != sock.ErrWouldBlock
	})
}

func forgetsReset() (forgotten bool) {
	stream(func(s, peer *sock.Socket) {
		reset(peer)
		_, err := received(s)
		forgotten = err == io.EOF
	})
	return forgotten
}

func forgetsPeer() (forgotten bool) {
	stream(func(s, peer *sock.Socket) {
		reset(peer)
		received(s)
		forgotten = !s.RemoteAddr().IsValid()
	})
	return forgotten
}

func keepsPort() bool {
	s := must(sock.New(sock.TCP4))
	defer s.Close()
	port := must(windows.CreateIoCompletionPort(windows.Handle(s.Handle()), 0, 0, 0))
	defer windows.CloseHandle(port)
	var status windows.IO_STATUS_BLOCK
	var none struct{ port, key uintptr }
	return windows.NtSetInformationFile(windows.Handle(s.Handle()), &status, (*byte)(unsafe.Pointer(&none)),
		uint32(unsafe.Sizeof(none)), windows.FileReplaceCompletionInformation) != nil
}

func countsNoHandle() bool {
	count := windows.NewLazySystemDLL("kernel32.dll").NewProc("GetProcessHandleCount")
	var open uint32
	r, _, _ := syscall.SyscallN(count.Addr(), uintptr(windows.CurrentProcess()), uintptr(unsafe.Pointer(&open)))
	return r == 0 || open == 0
}

func hasNoUnix() bool {
	s, err := sock.New(sock.Unix)
	if err != nil {
		return true
	}
	s.Close()
	return false
}
