package server

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	testawait "github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/sock"
)

// An optioner sends the options of each new connection to a channel: TCP_NODELAY and its keep-alive probes.
type optioner struct {
	counter
	t   *testing.T
	got chan optionsOf
}

type optionsOf struct {
	noDelay bool
	probes  probes
}

func (o optioner) Open(c *Conn[*int]) error {
	on, err := c.in.Socket().NoDelay()
	if err != nil {
		o.t.Error(err)
	}
	o.got <- optionsOf{on, probesOf(o.t, int(c.in.Socket().Handle()))}
	return io.EOF
}

// Every connection has the options, whether it inherits them or was connected before the listener had them, and whatever
// options the listener had before.
func TestConnectionOptions(t *testing.T) {
	for name, prepare := range map[string]func(l *sock.Socket) error{
		"plain":    func(l *sock.Socket) error { return nil },
		"no delay": func(l *sock.Socket) error { return l.SetNoDelay(true) },
		"other probes": func(l *sock.Socket) error {
			return l.SetKeepAlive(net.KeepAliveConfig{Enable: true, Idle: 99 * time.Second, Count: 3})
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := listenTCP(t)
			if err := prepare(l); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				dialTCP(t, l.LocalAddr().String()) // into the backlog
			}
			h := optioner{t: t, got: make(chan optionsOf, 8)}
			s := &Server[*int]{
				Handler: h, KeepAlive: -1,
				KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 7 * time.Second, Interval: 3 * time.Second, Count: 4},
			}
			servingBy(t, s, func() error { return s.ServeSocket(l) })
			want := optionsOf{true, probes{1, 7, 3, 4}}
			for i := range 6 {
				if i >= 3 {
					dialTCP(t, l.LocalAddr().String())
				}
				if got := <-h.got; got != want {
					t.Errorf("connection %d has %+v; want %+v", i, got, want)
				}
			}
		})
	}
}

// If connections inherit the listener's options, nothing is set. If one does not, everything is set, on it and on all
// later connections.
func TestListenerOptionsInherited(t *testing.T) {
	s := listenTCP(t)
	defer s.Close()
	l := &listener{server: new(server), sock: s}
	l.server.KeepAlive = new(Server[any]).keepAlive()
	if l.setInheritable(); !l.inheritable.Load() {
		t.Fatal("the listener's options were not set")
	}
	accepted := func() sock.Held {
		dialTCP(t, s.LocalAddr().String())
		var c *sock.Socket
		var err error
		testawait.Until(t, "a connection", func() bool {
			c, err = s.Accept()
			return err != sock.ErrWouldBlock
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		held, _ := c.Hold()
		t.Cleanup(held.Release)
		return held
	}
	count := func(c sock.Held, n int) {
		t.Helper()
		if err := unix.SetsockoptInt(int(c.Socket().Handle()), unix.IPPROTO_TCP, unix.TCP_KEEPCNT, n); err != nil {
			t.Fatal(err)
		}
	}
	has := func(c sock.Held, want probes) {
		t.Helper()
		on, err := c.Socket().NoDelay()
		if got := probesOf(t, int(c.Socket().Handle())); got != want || !on || err != nil {
			t.Errorf("probes %v, no delay %v, %v; want %v", got, on, err, want)
		}
	}
	first, second := accepted(), accepted()
	l.setOptions(first)
	has(first, probes{1, 15, 15, 9})
	count(second, 5)
	l.setOptions(second)
	has(second, probes{1, 15, 15, 5}) // it was not set again

	l.verified.Store(false)
	third, fourth := accepted(), accepted()
	count(third, 5)
	l.setOptions(third)
	has(third, probes{1, 15, 15, 9})
	count(fourth, 5)
	l.setOptions(fourth)
	has(fourth, probes{1, 15, 15, 9})
	if l.inheritable.Load() {
		t.Error("inheritable is still set")
	}
}
