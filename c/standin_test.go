//go:build linux && cgo && !386 && !arm && !mips && !mipsle

package main

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
)

func newAlert(t *testing.T) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// On every backend a thread that finds nothing is told what to wait for, outside Go, and that becomes readable when there is
// something.
func TestWaitsOutside(t *testing.T) {
	for _, b := range []string{"epoll", "poll"} {
		t.Run(b, func(t *testing.T) {
			t.Setenv("SOCKNOTIFY_BACKEND", b)
			p := newTestPort(t)
			if got := p.Backend(); got != b {
				t.Fatalf("backend %s", got)
			}
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Close(pair[0]); unix.Close(pair[1]) })
			alert := newAlert(t)
			var got _Ctype_uint32_t
			var entry cEntry
			const id, forever = 1 << 10, 1<<32 - 1
			for i := range 20 {
				reg := []registration{{Handle: uintptr(pair[0]), Key: key{completion: 7}, Filter: socknotify.EventIn,
					Op: socknotify.OpEnable, Trigger: socknotify.TriggerLevel | socknotify.TriggerOneShot}}
				if _, err := p.Process(reg, nil, 0); err != nil || reg[0].Result != nil {
					t.Fatal(err, reg[0].Result)
				}
				readable := cInt(-1)
				code := snGoProcess(cHandle(p.handle), 0, nil, forever, 1, &entry, &got, id, cInt(alert), &readable)
				if code != _Ciconst_SN_WAIT || readable < 0 {
					t.Fatalf("%d: result %d, descriptor %d", i, code, readable)
				}
				unix.Write(pair[1], []byte{1})
				for code == _Ciconst_SN_WAIT { // a wait may end without cause
					fds := []unix.PollFd{{Fd: int32(readable), Events: unix.POLLIN}}
					if n, err := unix.Poll(fds, int(time.Minute/time.Millisecond)); n != 1 && err != unix.EINTR {
						t.Fatalf("%d: %d, %v", i, n, err)
					}
					code = snGoWait(id, &entry, 1, false, &got, &readable)
				}
				if code != 0 || got != 1 || entry.lpCompletionKey != 7 || entry.dwNumberOfBytesTransferred != _Ctype_DWORD(socknotify.EventIn) {
					t.Fatalf("%d: result %d, %d entries, %+v", i, code, got, entry)
				}
				unix.Read(pair[0], make([]byte, 8))
			}
		})
	}
}

// The helper parks although a goroutine parks in the place of an earlier leader, and that leader has
// made one more request. Nothing else would end the first Park.
func TestHelperParks(t *testing.T) {
	t.Setenv("SOCKNOTIFY_BACKEND", "poll")
	s := newTestPort(t).stand
	for range 20 {
		await.Until(t, "the Park of a leader", func() bool {
			s.ask() // a Park may be over already, because sockets are to be looked at again
			free := s.parking.TryLock()
			if free {
				s.parking.Unlock()
			}
			return !free
		})
		s.ask()
		polled := make(chan error, 1)
		go func() {
			polled <- s.park(time.Time{}, func() bool { return true })
		}()
		if err := await.Receive(t, "the Park of the helper", polled); err != nil {
			t.Fatal(err)
		}
	}
}

// A stream that was not started must not be watched by poll(2), so the backend looks at it now and then.
func TestWaitsOutsideForConnect(t *testing.T) {
	for _, b := range []string{"epoll", "poll"} {
		t.Run(b, func(t *testing.T) {
			t.Setenv("SOCKNOTIFY_BACKEND", b)
			p := newTestPort(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Close(s) })
			alert := newAlert(t)
			reg := []registration{{Handle: uintptr(s), Key: key{completion: 7}, Filter: socknotify.EventOut, Op: socknotify.OpEnable,
				Trigger: socknotify.TriggerLevel | socknotify.TriggerOneShot}}
			if _, err := p.Process(reg, nil, 0); err != nil || reg[0].Result != nil {
				t.Fatal(err, reg[0].Result)
			}
			var got _Ctype_uint32_t
			var entry cEntry
			var readable cInt
			const id = 1 << 11
			code := snGoProcess(cHandle(p.handle), 0, nil, 1<<32-1, 1, &entry, &got, id, cInt(alert), &readable)
			at := netip.MustParseAddrPort(l.Addr().String())
			started := false
			for looks := 0; code == _Ciconst_SN_WAIT; looks++ {
				if looks > 1000 {
					t.Fatal("the descriptor is readable without cause")
				}
				ms := int(time.Minute / time.Millisecond)
				if !started {
					ms = 50
				}
				n, _ := unix.Poll([]unix.PollFd{{Fd: int32(readable), Events: unix.POLLIN}}, ms)
				if n == 0 && started {
					t.Fatal("nothing is readable")
				}
				if n == 0 || looks == 20 {
					started = true
					if err := unix.Connect(s, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
						t.Fatal(err)
					}
				}
				code = snGoWait(id, &entry, 1, false, &got, &readable)
			}
			if code != 0 || got != 1 || !started {
				t.Fatalf("result %d, %d entries, started %v", code, got, started)
			}
		})
	}
}
