package socknotify

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/socknotify/socknotify/sock"
)

// SockPair makes a connected pair of Unix streams, or of TCP where the system has none, as Wine.
func SockPair() (x, y *sock.Socket, err error) {
	if x, y, err = sock.UnixPair(false); !errors.Is(err, errors.ErrUnsupported) {
		return x, y, err
	}
	return tcpPair()
}

// tcpPair makes a TCP connection.
func tcpPair() (x, y *sock.Socket, err error) {
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{Backlog: 1})
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if x, err = sock.New(sock.TCP4); err != nil {
		return nil, nil, err
	}
	if err = x.Connect(l.LocalAddr()); err == nil || err == sock.ErrWouldBlock {
		for end := time.Now().Add(soon); ; time.Sleep(time.Millisecond) {
			if y, err = l.Accept(); err != sock.ErrWouldBlock || time.Now().After(end) {
				break
			}
		}
	}
	if err != nil {
		x.Close()
	}
	return x, y, err
}

// nextHasNumber skips a test whose next socket must get the number of the one that was closed last. Package
// conformance has cases that bring a number back on every system.
func nextHasNumber(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows gives out numbers in an order of its own")
	}
}
