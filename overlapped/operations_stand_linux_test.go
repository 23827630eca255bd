package overlapped

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/sock"
)

// An error queue that is not read persists, and no receive empties it. A backend without edges reports it whenever
// it is polled. So it is polled after a delay, and the port does not spin (E8). But it is polled.
func TestOperationUnderStandingError(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], h *backendtest.Hooked) {
		var socks [2]*sock.Socket
		for i := range socks {
			s, err := sock.New(sock.UDP4)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			must(t, s.Bind(sock.Loopback))
			socks[i] = s
		}
		s, peer := socks[0], socks[1]
		must(t, unix.SetsockoptInt(int(s.Handle()), unix.IPPROTO_IP, unix.IP_RECVERR, 1))
		if err := s.SendTo(make([]byte, 0xffff-10), peer.LocalAddr()); err == nil {
			t.Fatal("a datagram with more than there is room for is sent")
		}
		if m := h.PollOne(s.Handle()); m&backend.Err == 0 {
			t.Fatalf("it does not stand: %#x", m)
		}
		var o Op[string]
		b := make([]byte, 1)
		recv(t, p, s, b, &o)
		reports := 0
		h.After = func([]backend.Ready) { reports++ }
		const calls = 2000
		for range calls {
			none(t, p)
		}
		h.After = nil
		// A while is 250 ms, of which no machine needs many for a call.
		if reports == 0 || reports > calls/10 {
			t.Errorf("%d calls had %d reports of what stands", calls, reports)
		}
		must(t, peer.SendTo([]byte("x"), s.LocalAddr()))
		completes(t, p, &o, 1, nil)
	})
}
