//go:build linux

package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// perAddress is how many connections go to one address of the server. The client's port is the only other number
// that makes one different, and the kernel looks longer for a free port the more of them are in use.
const perAddress = 20_000

// Clients are connections, which read and write their sockets in blocking calls of a few threads: package net would
// need memory and a second registration for each.
type clients struct {
	kind  *kind
	conns []conn
	asks  map[int]net.Conn // those that ask again, which of TLS have keys
}

// A conn is a socket.
type conn int

func (c conn) Read(b []byte) (int, error) {
	n, err := retry(func() (int, error) { return unix.Read(int(c), b) })
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (c conn) Write(b []byte) (int, error) {
	return retry(func() (int, error) { return unix.SendmsgN(int(c), b, nil, nil, unix.MSG_NOSIGNAL) })
}

func (c conn) Close() error                       { return unix.Close(int(c)) }
func (c conn) LocalAddr() net.Addr                { return nil }
func (c conn) RemoteAddr() net.Addr               { return nil }
func (c conn) SetDeadline(time.Time) error        { return nil }
func (c conn) SetReadDeadline(t time.Time) error  { return nil }
func (c conn) SetWriteDeadline(t time.Time) error { return nil }

func retry(f func() (int, error)) (n int, err error) {
	for {
		if n, err = f(); err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// answerTimeout bounds a wait for an answer.
const answerTimeout = 120 * time.Second

// dial connects to the server, as the connection with a number.
func dial(port, number int) (conn, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	timeout := unix.NsecToTimeval(answerTimeout.Nanoseconds())
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
	if err == nil {
		host := number / perAddress
		to := &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 1, byte(host >> 8), byte(host + 1)}}
		_, err = retry(func() (int, error) { return 0, unix.Connect(fd, to) })
	}
	if err != nil {
		unix.Close(fd)
		return 0, os.NewSyscallError("connect", err)
	}
	return conn(fd), nil
}

// each calls f for the numbers up to n in some threads, until it fails.
func each(n int, f func(int) error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var threads sync.WaitGroup
	for range 64 {
		threads.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(i); err != nil {
					err = fmt.Errorf("connection %d: %w", i, err)
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	threads.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// connect opens connections, each of which has a request answered.
func connect(k *kind, port, n int) (*clients, error) {
	c := &clients{kind: k, conns: make([]conn, n), asks: make(map[int]net.Conn, n/100+1)}
	var mu sync.Mutex
	config := &tls.Config{InsecureSkipVerify: true, ClientSessionCache: nil}
	err := each(n, func(i int) error {
		socket, err := dial(port, i)
		if err != nil {
			return err
		}
		c.conns[i] = socket
		var to net.Conn = socket
		if k.secure {
			to = tls.Client(socket, config)
		}
		if err := exchange(to, k.first, k.answer); err != nil {
			return err
		}
		if i%100 == 0 {
			mu.Lock()
			c.asks[i] = to
			mu.Unlock()
		}
		return nil
	})
	runtime.GC() // the handshakes' memory
	return c, err
}

// exchange writes a request, if it is not nil, and reads until what it has read ends as said.
func exchange(c net.Conn, request []byte, end string) error {
	if request != nil {
		if _, err := c.Write(request); err != nil {
			return os.NewSyscallError("send", err)
		}
	}
	var buf [1024]byte
	for n := 0; ; {
		got, err := c.Read(buf[n:])
		if n += got; bytes.HasSuffix(buf[:n], []byte(end)) {
			return nil
		}
		switch {
		case errors.Is(err, unix.EAGAIN):
			return fmt.Errorf("no answer within %v", answerTimeout)
		case err != nil:
			return os.NewSyscallError("read", err)
		case n == len(buf):
			return fmt.Errorf("got %q", buf[:n])
		}
	}
}

// ask has one of a hundred ask again.
func (c *clients) ask() error {
	return each((len(c.conns)+99)/100, func(i int) error { return exchange(c.asks[i*100], c.kind.ask, c.kind.answerAsk) })
}

// hear waits until all have the message.
func (c *clients) hear() error {
	return each(len(c.conns), func(i int) error { return exchange(c.conns[i], nil, c.kind.all) })
}

// gone returns the number of connections that have ended.
func (c *clients) gone() (n int) {
	var b [1]byte
	for _, socket := range c.conns {
		got, _, err := unix.Recvfrom(int(socket), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if got <= 0 && err != unix.EAGAIN {
			n++
		}
	}
	return n
}

func (c *clients) close() {
	for _, socket := range c.conns {
		if socket > 0 {
			socket.Close()
		}
	}
}
