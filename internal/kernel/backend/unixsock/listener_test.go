//go:build unix

package unixsock

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// Describe and seemsToListen agree on which sockets are listeners.
func TestListener(t *testing.T) {
	socket := func(domain, typ int) int {
		t.Helper()
		fd, err := unix.Socket(domain, typ, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	expect := func(what string, fd int, want backend.Kind) {
		t.Helper()
		if kind, err := Describe(uintptr(fd)); kind != want || err != nil {
			t.Errorf("%s: Describe = %d, %v; want %d", what, kind, err, want)
		}
		if seemsToListen(fd) != (want == backend.Listener) {
			t.Errorf("%s: seemsToListen disagrees with kind %d", what, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	dir, err := os.MkdirTemp("", "s") // short enough for an address everywhere
	must(err)
	defer os.RemoveAll(dir)
	loopback := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	for name, addr := range map[string]unix.Sockaddr{
		"TCP":  loopback,
		"Unix": &unix.SockaddrUnix{Name: filepath.Join(dir, "s")},
	} {
		domain := unix.AF_INET
		if name == "Unix" {
			domain = unix.AF_UNIX
		}
		client := socket(domain, unix.SOCK_STREAM)
		expect(name+" fresh", client, backend.Stream)
		server := socket(domain, unix.SOCK_STREAM)
		must(unix.Bind(server, addr))
		must(unix.Listen(server, 1))
		expect(name+" listener", server, backend.Listener)
		to, err := unix.Getsockname(server)
		must(err)
		must(unix.Connect(client, to))
		expect(name+" connected", client, backend.Stream)
		peer, _, err := unix.Accept(server)
		must(err)
		expect(name+" accepted", peer, backend.Stream)
		must(unix.Close(peer))
		expect(name+" hung up on", client, backend.Stream)
	}
	d := socket(unix.AF_INET, unix.SOCK_DGRAM)
	must(unix.Bind(d, loopback))
	if kind, err := Describe(uintptr(d)); kind != backend.Datagram || err != nil {
		t.Errorf("datagram: %d, %v", kind, err)
	}
}
