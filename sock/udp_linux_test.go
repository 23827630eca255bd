package sock_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/socknotify/socknotify/sock"
)

func TestListenUDP(t *testing.T) {
	needV6(t)
	first, err := sock.ListenUDP(sock.Loopback, sock.ListenOptions{ReusePort: true})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := sock.ListenUDP(first.LocalAddr(), sock.ListenOptions{ReusePort: true})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if _, err := sock.ListenUDP(first.LocalAddr(), sock.ListenOptions{}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("without ReusePort: %v", err)
	}
	// Without DualStack an IPv6 socket refuses mapped addresses.
	mapped := netip.MustParseAddrPort("[::ffff:127.0.0.1]:0")
	if _, err := sock.ListenUDP(mapped, sock.ListenOptions{}); err == nil {
		t.Error("sending to a mapped address succeeded without DualStack")
	}
	s, err := sock.ListenUDP(mapped, sock.ListenOptions{DualStack: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}
