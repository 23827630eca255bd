package server

import (
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/sock"
)

// probes are the options of keep-alive: on, idle, interval, count.
type probes [4]int

func probesOf(t *testing.T, fd int) (p probes) {
	t.Helper()
	for i, o := range [][2]int{{unix.SOL_SOCKET, unix.SO_KEEPALIVE}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL}, {unix.IPPROTO_TCP, unix.TCP_KEEPCNT}} {
		v, err := unix.GetsockoptInt(fd, o[0], o[1])
		if err != nil {
			t.Error(err)
		}
		p[i] = v
	}
	return p
}

func probesOfConn(t *testing.T, c net.Conn) (p probes) {
	t.Helper()
	rc, err := c.(syscall.Conn).SyscallConn()
	if err == nil {
		err = rc.Control(func(fd uintptr) { p = probesOf(t, int(fd)) })
	}
	if err != nil {
		t.Error(err)
	}
	return p
}

// A prober sends the options of each connection to a channel: before Hijack, after it, and after Resume.
type prober struct {
	counter
	t   *testing.T
	got chan probes
}

func (p prober) Open(c *Conn[*int]) error {
	p.got <- probesOf(p.t, int(c.in.Socket().Handle()))
	nc, err := c.Hijack()
	if err != nil {
		return err
	}
	p.got <- probesOfConn(p.t, nc.(interface{ NetConn() net.Conn }).NetConn())
	if err := c.Resume(); err != nil {
		return err
	}
	p.got <- probesOf(p.t, int(c.in.Socket().Handle()))
	return io.EOF
}

// Connections have the same keep-alive options as those of a net.ListenConfig with the same fields.
func TestKeepAlive(t *testing.T) {
	for _, c := range []struct {
		name   string
		period time.Duration
		config net.KeepAliveConfig
	}{
		{"default", 0, net.KeepAliveConfig{}},
		{"off", -1, net.KeepAliveConfig{}},
		{"period", 40 * time.Second, net.KeepAliveConfig{}},
		{"config", -1, net.KeepAliveConfig{Enable: true, Idle: 7 * time.Second, Interval: 3 * time.Second, Count: 4}},
		{"idle only", 0, net.KeepAliveConfig{Enable: true, Idle: time.Minute}},
	} {
		for _, from := range []string{"net", "sock"} { // of which the first is of MPTCP, where the system has it
			t.Run(c.name+" "+from, func(t *testing.T) {
				backendtest.Each(t, func(t *testing.T, backend string) {
					h := prober{t: t, got: make(chan probes, 3)}
					s := &Server[*int]{Handler: h, Backend: backend, KeepAlive: c.period, KeepAliveConfig: c.config}
					l, addr := listening(t, from, c.period, c.config)
					servingBy(t, s, func() error {
						if from == "net" {
							return s.Serve(l.(net.Listener))
						}
						return s.ServeSocket(l.(*sock.Socket))
					})
					dialTCP(t, addr)
					want := netProbes(t, c.period, c.config)
					if on := want[0] == 1; on != (c.name != "off") {
						t.Errorf("package net has %v", want)
					}
					for _, when := range []string{"accepted", "hijacked", "resumed"} {
						got := <-h.got
						if got != want && got[0]+want[0] > 0 { // where they are off the rest means nothing
							t.Errorf("%s: %v; want %v", when, got, want)
						}
					}
				})
			})
		}
	}
}

func listening(t *testing.T, from string, period time.Duration, config net.KeepAliveConfig) (l any, addr string) {
	t.Helper()
	if from == "net" {
		lc := net.ListenConfig{KeepAlive: period, KeepAliveConfig: config}
		l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l, l.Addr().String()
	}
	s := listenTCP(t)
	return s, s.LocalAddr().String()
}

// netProbes returns the options of a connection that package net has accepted.
func netProbes(t *testing.T, period time.Duration, config net.KeepAliveConfig) probes {
	t.Helper()
	l, addr := listening(t, "net", period, config)
	defer l.(net.Listener).Close()
	dialTCP(t, addr)
	c, err := l.(net.Listener).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return probesOfConn(t, c)
}
