package sock_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/test/qemu"
	"github.com/socknotify/socknotify/sock"
)

// waitArrival waits until f has caused more data to arrive at a TCP socket. The number of bytes
// that can be received is not enough, because it ends at an urgent byte.
func waitArrival(t *testing.T, s *sock.Socket, f func()) {
	t.Helper()
	if qemu.HidesTCPInfo.Here() {
		t.Skip(qemu.HidesTCPInfo)
	}
	count := func() uint64 {
		info, err := unix.GetsockoptTCPInfo(int(s.Handle()), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			t.Fatal(err)
		}
		return info.Bytes_received
	}
	before, end := count(), time.Now().Add(timeout)
	for f(); count() == before; {
		if time.Now().After(end) {
			t.Fatal("timed out waiting for the data")
		}
	}
}

// urgent sends an urgent byte. It is not part of the stream, and receives stop at it.
func urgent(t *testing.T, peer, s *sock.Socket) {
	t.Helper()
	must(t, unix.Send(int(peer.Handle()), []byte("!"), unix.MSG_OOB))
	waitPoll(t, s, unix.POLLPRI)
}

func isCause(err, cause error) bool {
	e, ok := err.(*sock.Error)
	return ok && e.Err == cause
}
