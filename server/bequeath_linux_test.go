package server

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/sock"
)

// An optioner tells whether a new connection has TCP_NODELAY, and its probes.
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
	on, err := c.socket().NoDelay()
	if err != nil {
		o.t.Error(err)
	}
	o.got <- optionsOf{on, probesOf(o.t, int(c.socket().Handle()))}
	return io.EOF
}

// Every connection has the options, whether it has them from the listener or was connected before that had them, and
// whatever the listener had before.
func TestOptionsOfEveryConnection(t *testing.T) {
	for name, prepare := range map[string]func(l *sock.Socket) error{
		"plain":    func(l *sock.Socket) error { return nil },
		"no delay": func(l *sock.Socket) error { return l.SetNoDelay(true) },
		"other probes": func(l *sock.Socket) error {
			return l.SetKeepAlive(net.KeepAliveConfig{Enable: true, Idle: 99 * time.Second, Count: 3})
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := prepare(l); err != nil {
				t.Fatal(err)
			}
			dial := func() {
				peer, err := net.Dial("tcp", l.LocalAddr().String())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { peer.Close() })
			}
			for range 3 {
				dial() // into the backlog
			}
			h := optioner{t: t, got: make(chan optionsOf, 8)}
			s := &Server[*int]{
				Handler: h, KeepAlive: -1,
				KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 7 * time.Second, Interval: 3 * time.Second, Count: 4},
			}
			done := make(chan error, 1)
			go func() { done <- s.ServeSocket(l) }()
			want := optionsOf{true, probes{1, 7, 3, 4}}
			for i := range 6 {
				if i >= 3 {
					dial()
				}
				if got := <-h.got; got != want {
					t.Errorf("connection %d has %+v; want %+v", i, got, want)
				}
			}
			s.Close()
			if err := <-done; err != ErrServerClosed {
				t.Error(err)
			}
			s.Shutdown(t.Context())
		})
	}
}

// A connection costs no setting of options where the listener has them: it begins with those of the listener.
func TestListenerBequeaths(t *testing.T) {
	s, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := &listener[*int]{server: &Server[*int]{}, sock: s, tcp: true}
	if l.bequeath(); !l.bequeaths {
		t.Fatal("the listener's options were not set")
	}
	peer, err := net.Dial("tcp", s.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	var c *sock.Socket
	for end := time.Now().Add(time.Minute); c == nil; time.Sleep(time.Millisecond) {
		if c, err = s.Accept(); err != nil && (err != sock.ErrWouldBlock || time.Now().After(end)) {
			t.Fatal(err)
		}
	}
	defer c.Close()
	// Another value tells whether tune sets it.
	if err := unix.SetsockoptInt(int(c.Handle()), unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 5); err != nil {
		t.Fatal(err)
	}
	if l.tune(c); probesOf(t, int(c.Handle())) != (probes{1, 15, 15, 5}) {
		t.Errorf("probes %v; want the listener's, and a count that was left alone", probesOf(t, int(c.Handle())))
	}
}
