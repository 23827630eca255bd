package sock_test

import (
	"io"
	"math"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/sock"
)

func TestFlags(t *testing.T) {
	needV6(t)
	for _, c := range []struct {
		name          string
		network       sock.Network
		set           func(s *sock.Socket, on bool) error
		level, option int
		inverted      bool
	}{
		{"no delay", sock.TCP4, (*sock.Socket).SetNoDelay, unix.IPPROTO_TCP, unix.TCP_NODELAY, false},
		{"reuse port", sock.TCP4, (*sock.Socket).SetReusePort, unix.SOL_SOCKET, unix.SO_REUSEPORT, false},
		{"reuse port, datagrams", sock.UDP4, (*sock.Socket).SetReusePort, unix.SOL_SOCKET, unix.SO_REUSEPORT, false},
		{"dual stack", sock.TCP6, (*sock.Socket).SetDualStack, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, true},
		{"dual stack, datagrams", sock.UDP6, (*sock.Socket).SetDualStack, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, true},
		{"keep alive", sock.TCP4, func(s *sock.Socket, on bool) error {
			return s.SetKeepAlive(net.KeepAliveConfig{Enable: on})
		}, unix.SOL_SOCKET, unix.SO_KEEPALIVE, false},
	} {
		s := newSocket(t, c.network)
		for _, on := range []bool{true, false, true, true} {
			if err := c.set(s, on); err != nil || (option(t, s, c.level, c.option) != 0) != (on != c.inverted) {
				t.Errorf("%s %v: %v, %d", c.name, on, err, option(t, s, c.level, c.option))
			}
			if c.option != unix.TCP_NODELAY || c.level != unix.IPPROTO_TCP {
				continue
			}
			if got, err := s.NoDelay(); got != on || err != nil {
				t.Errorf("NoDelay = %v, %v; want %v", got, err, on)
			}
		}
	}
}

func TestOptionsUnsupported(t *testing.T) {
	needV6(t)
	for _, c := range []struct {
		name    string
		network sock.Network
		set     func(s *sock.Socket) error
		cause   error // nil: any
	}{
		{"no delay of datagrams", sock.UDP4, func(s *sock.Socket) error { return s.SetNoDelay(true) }, nil},
		{"no delay of a Unix socket", sock.Unix, func(s *sock.Socket) error { return s.SetNoDelay(true) }, nil},
		{"dual stack of IPv4", sock.TCP4, func(s *sock.Socket) error { return s.SetDualStack(true) }, nil},
		{"keep alive of a Unix socket", sock.Unix, func(s *sock.Socket) error {
			return s.SetKeepAlive(net.KeepAliveConfig{Enable: true})
		}, nil},
		{"a linger that blocks", sock.TCP4, func(s *sock.Socket) error { return s.SetLinger(5) }, os.ErrInvalid},
		{"keep alive out of range", sock.TCP4, func(s *sock.Socket) error {
			return s.SetKeepAlive(net.KeepAliveConfig{Enable: true, Idle: 1 << 20 * time.Second})
		}, unix.EINVAL},
		{"the longest keep alive", sock.TCP4, func(s *sock.Socket) error {
			return s.SetKeepAlive(net.KeepAliveConfig{Enable: true, Idle: math.MaxInt64})
		}, unix.EINVAL},
	} {
		s := newSocket(t, c.network)
		wantError(t, c.set(s), "setsockopt", s.Handle(), c.cause)
	}
	s := newSocket(t, sock.TCP6)
	if err := s.Bind(sock.Loopback6); err == nil {
		wantError(t, s.SetDualStack(true), "setsockopt", s.Handle(), unix.EINVAL) // fails after Bind
	}
}

func TestKeepAlive(t *testing.T) {
	const system = 7 // the initial value of each option
	for _, c := range []struct {
		config               net.KeepAliveConfig
		idle, interval, many int
	}{
		{net.KeepAliveConfig{Enable: true, Idle: 40 * time.Second, Interval: 3 * time.Second, Count: 5}, 40, 3, 5},
		{net.KeepAliveConfig{Enable: true}, 15, 15, 9},
		{net.KeepAliveConfig{Enable: true, Idle: -1, Interval: -1, Count: -1}, system, system, system},
		{net.KeepAliveConfig{Enable: true, Idle: 1, Interval: 1001 * time.Millisecond, Count: 1}, 1, 2, 1}, // rounds up
		{net.KeepAliveConfig{Idle: time.Second, Interval: time.Second, Count: 1}, system, system, system},
	} {
		s := newSocket(t, sock.TCP4)
		names := []int{unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT}
		for _, name := range names {
			must(t, unix.SetsockoptInt(int(s.Handle()), unix.IPPROTO_TCP, name, system))
		}
		if err := s.SetKeepAlive(c.config); err != nil {
			t.Errorf("%+v: %v", c.config, err)
		}
		for i, want := range []int{c.idle, c.interval, c.many} {
			if got := option(t, s, unix.IPPROTO_TCP, names[i]); got != want {
				t.Errorf("%+v: %d is %d, want %d", c.config, i, got, want)
			}
		}
		want := net.KeepAliveConfig{
			Enable: c.config.Enable, Idle: time.Duration(c.idle) * time.Second,
			Interval: time.Duration(c.interval) * time.Second, Count: c.many,
		}
		if got, err := s.KeepAlive(); got != want || err != nil {
			t.Errorf("%+v: KeepAlive = %+v, %v; want %+v", c.config, got, err, want)
		}
		if got := option(t, s, unix.SOL_SOCKET, unix.SO_KEEPALIVE) != 0; got != c.config.Enable {
			t.Errorf("%+v: on is %v", c.config, got)
		}
	}
}

func TestBuffers(t *testing.T) {
	s := newSocket(t, sock.TCP4)
	for _, n := range []int{64 << 10, 32 << 10} {
		if err := s.SetReadBuffer(n); err != nil || option(t, s, unix.SOL_SOCKET, unix.SO_RCVBUF) != 2*n { // socket(7)
			t.Errorf("%v, %d, want twice %d", err, option(t, s, unix.SOL_SOCKET, unix.SO_RCVBUF), n)
		}
		if err := s.SetWriteBuffer(n / 2); err != nil || option(t, s, unix.SOL_SOCKET, unix.SO_SNDBUF) != n {
			t.Errorf("%v, %d, want twice %d", err, option(t, s, unix.SOL_SOCKET, unix.SO_SNDBUF), n/2)
		}
	}
}

// With 0 the peer receives a reset, otherwise the data and the end of the stream.
func TestLinger(t *testing.T) {
	for _, c := range []struct {
		name  string
		set   []int
		reset bool
	}{
		{"unset", nil, false},
		{"0", []int{0}, true},
		{"-1", []int{-1}, false},
		{"0, then -1", []int{0, -1}, false},
		{"-1, then 0", []int{-1, 0}, true},
		{"0, then what is refused", []int{0, 5}, true},
		{"what is refused", []int{5}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := tcpOn(t, sock.Loopback)
			for _, n := range c.set {
				if err := a.SetLinger(n); (err != nil) != (n > 0) {
					t.Fatalf("SetLinger(%d) = %v", n, err)
				}
			}
			must(t, a.Close())
			waitPoll(t, b, ended)
			_, err := b.Recv(make([]byte, 1))
			if c.reset {
				wantError(t, err, "recv", b.Handle(), unix.ECONNRESET)
			} else if err != io.EOF {
				t.Errorf("%v", err)
			}
		})
	}
}
