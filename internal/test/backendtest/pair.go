package backendtest

import (
	"errors"
	"time"

	"github.com/socknotify/socknotify/sock"
)

// Pair makes a connected pair of Unix streams, or of TCP where the system has none, as Wine.
func Pair() (x, y *sock.Socket, err error) {
	if x, y, err = sock.UnixPair(false); !errors.Is(err, errors.ErrUnsupported) {
		return x, y, err
	}
	return TCPPair()
}

// TCPPair makes a TCP connection.
func TCPPair() (x, y *sock.Socket, err error) {
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{Backlog: 1})
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if x, err = sock.New(sock.TCP4); err != nil {
		return nil, nil, err
	}
	if err = x.Connect(l.LocalAddr()); err == nil || err == sock.ErrWouldBlock {
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
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
