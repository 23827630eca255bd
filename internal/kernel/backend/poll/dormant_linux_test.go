package poll

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/test/await"
)

// A stream that was never started is left out of a harvest by the results of poll(2) alone, whatever it waits for. Once it has
// been started and has ended, or has failed, it is reported.
func TestDormantStream(t *testing.T) {
	for _, interest := range []backend.Mask{0, backend.In, backend.Out, backend.PeerClosed, backend.In | backend.Out} {
		for _, refused := range []bool{false, true} {
			k, err := New()
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			p := k.(*Poller)
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			ready := make([]backend.Ready, 4)
			if n := p.Poll([]backend.Change{{Handle: uintptr(fd), Token: 1, Interest: interest}}, ready); n != 0 {
				t.Fatalf("%v: %d reports of a stream that was never started", interest, n)
			}
			for range 3 {
				if n := p.Poll(nil, ready); n != 0 || !p.neverStarted(1) {
					t.Fatalf("%v: %d reports of a stream that was never started; to be left out: %t", interest, n, p.neverStarted(1))
				}
			}
			l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(l)
			if err := unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
				t.Fatal(err)
			}
			if refused { // a connect that blocks would take the error, and leave the stream as it was before
				err = unix.SetNonblock(fd, true)
			} else {
				err = unix.Listen(l, 1) // without it the port refuses, and no other program gets it
			}
			if err != nil {
				t.Fatal(err)
			}
			to, err := unix.Getsockname(l)
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Connect(fd, to); err != nil && err != unix.EINPROGRESS {
				t.Fatal(err)
			}
			if !refused { // and ended, without a poll while it was connected
				c, _, err := unix.Accept(l)
				if err != nil {
					t.Fatal(err)
				}
				unix.Close(c)
				if err := unix.Shutdown(fd, unix.SHUT_RDWR); err != nil {
					t.Fatal(err)
				}
			}
			await.Until(t, fmt.Sprintf("%v: the end of a stream (refused: %t)", interest, refused), func() bool {
				n := p.Poll(nil, ready)
				return n == 1 && ready[0].Token == 1 && ready[0].Mask&backend.Dead != 0
			})
		}
	}
}
