package facts

import (
	"errors"
	"time"

	"github.com/socknotify/socknotify/sock"
)

// A situation sets up a socket and returns a function that acts on it after it is watched.
type situation struct {
	name string
	// silent is set if no report has to come.
	silent bool
	// ends is set if act closes the socket's number.
	ends bool
	// alone is set if no other situation may get the number then.
	alone bool
	setUp func(c *scope) (s *sock.Socket, act func())
}

// A watcher is a seam or a watch.
type watcher interface {
	start(h uintptr) error
	reported(first time.Duration) (string, bool)
	holds() string
}

func situations() []row {
	var rows []row
	for _, s := range []situation{
		{name: "TCP, idle", silent: true, setUp: func(c *scope) (*sock.Socket, func()) {
			s, _ := c.tcp()
			return s, func() {}
		}},
		{name: "data arrives", setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.tcp()
			return s, func() { c.deliver(peer, s, "x") }
		}},
		{name: "more arrives, undrained", silent: true, setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.tcp()
			c.deliver(peer, s, "x")
			return s, func() { c.deliver(peer, s, "y") }
		}},
		{name: "data is received", silent: true, setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.tcp()
			c.deliver(peer, s, "x")
			return s, func() { c.drain(s) }
		}},
		{name: "urgent data arrives", silent: true, setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.tcp()
			return s, func() { c.check("urgent data", sendUrgent(peer.Handle())) }
		}},
		{name: "no room to send, then room", setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.tcp()
			n := c.fill(s, peer)
			return s, func() { c.receive(peer, n) }
		}},
		{name: "peer half-closes (FIN), no data", setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.tcp()
			return s, func() { c.shut(peer, sock.ShutWrite) }
		}},
		{name: "FIN behind unread data", setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.tcp()
			return s, func() { c.send(peer, "x"); c.shut(peer, sock.ShutWrite) }
		}},
		{name: "peer closes", setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.tcp()
			return s, func() { c.check("close", peer.Close()) }
		}},
		{name: "both directions shut", setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.tcp()
			return s, func() { c.shut(peer, sock.ShutWrite); c.shut(s, sock.ShutWrite) }
		}},
		{name: "peer resets (RST)", setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.tcp()
			return s, func() { c.reset(peer) }
		}},
		{name: "RST, SO_ERROR read", silent: true, setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.tcp()
			return s, func() { c.reset(peer); takeError(s) }
		}},
		{name: "RST behind unread data", setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.tcp()
			return s, func() { c.deliver(peer, s, "x"); c.reset(peer) }
		}},
		{name: "local shutdown of receiving", silent: true, setUp: func(c *scope) (*sock.Socket, func()) {
			s, _ := c.tcp()
			return s, func() { c.shut(s, sock.ShutRead) }
		}},
		{name: "local shutdown of sending", silent: true, setUp: func(c *scope) (*sock.Socket, func()) {
			s, _ := c.tcp()
			return s, func() { c.shut(s, sock.ShutWrite) }
		}},
		{name: "TCP, never connected", silent: true, setUp: func(c *scope) (*sock.Socket, func()) {
			return c.fresh(sock.TCP4), func() {}
		}},
		{name: "connect succeeds", setUp: func(c *scope) (*sock.Socket, func()) {
			l, s := c.listener(), c.fresh(sock.TCP4)
			return s, func() { c.connect(s, l); c.accept(l) }
		}},
		{name: "connect refused", setUp: func(c *scope) (*sock.Socket, func()) {
			s := c.fresh(sock.TCP4)
			return s, func() { c.refuse(s) }
		}},
		{name: "connect refused, SO_ERROR read", silent: true, setUp: func(c *scope) (*sock.Socket, func()) {
			s := c.fresh(sock.TCP4)
			return s, func() { c.refuse(s); takeError(s) }
		}},
		{name: "listener, connection pending", setUp: func(c *scope) (*sock.Socket, func()) {
			l, s := c.listener(), c.fresh(sock.TCP4)
			return l, func() { c.connect(s, l) }
		}},
		{name: "listener shut down", silent: true, setUp: func(c *scope) (*sock.Socket, func()) {
			l := c.listener()
			return l, func() {
				err := l.Shutdown(sock.ShutBoth)
				if errors.Is(err, errNotConnected) {
					err = errors.ErrUnsupported
				}
				c.check("shutdown", err)
			}
		}},
		{name: "listener closed while registered", silent: true, ends: true, setUp: func(c *scope) (*sock.Socket, func()) {
			l := c.listener()
			return l, func() { c.check("close", l.Close()) }
		}},
		{name: "UDP, idle", silent: true, setUp: func(c *scope) (*sock.Socket, func()) {
			s, _ := c.udp()
			return s, func() {}
		}},
		{name: "datagram arrives", setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.udp()
			return s, func() { c.deliver(peer, s, "x") }
		}},
		{name: "datagram refused (ICMP)", silent: true, setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.udp()
			return s, func() { c.check("close", peer.Close()); c.send(s, "x") }
		}},
		{name: "datagram refused, SO_ERROR read", silent: true, setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.udp()
			return s, func() { c.check("close", peer.Close()); c.send(s, "x"); takeError(s) }
		}},
		{name: "UDP, local shutdown", silent: true, setUp: func(c *scope) (*sock.Socket, func()) {
			s, _ := c.udp()
			return s, func() { c.shut(s, sock.ShutBoth) }
		}},
		{name: "Unix stream, never connected", silent: true, setUp: func(c *scope) (*sock.Socket, func()) {
			return c.fresh(sock.Unix), func() {}
		}},
		{name: "Unix stream, data arrives", setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.unix(false)
			return s, func() { c.deliver(peer, s, "x") }
		}},
		{name: "Unix stream, peer closes", setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.unix(false)
			return s, func() { c.check("close", peer.Close()) }
		}},
		{name: "Unix datagrams, peer closes", silent: true, setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.unix(true)
			return s, func() { c.check("close", peer.Close()) }
		}},
		{name: "closed while registered", silent: true, ends: true, setUp: func(c *scope) (*sock.Socket, func()) {
			s, _ := c.tcp()
			return s, func() { c.check("close", s.Close()) }
		}},
		{name: "closed, a duplicate open; data arrives", silent: true, ends: true, alone: true, setUp: func(c *scope) (*sock.Socket, func()) {
			s, peer := c.tcp()
			d, err := duplicate(s.Handle())
			c.check("duplicate", err)
			c.opened = append(c.opened, d)
			return s, func() { c.check("close", s.Close()); c.send(peer, "x") }
		}},
	} {
		rows = append(rows, s.row())
	}
	return rows
}

func (s situation) row() row {
	return row{
		name:  s.name,
		alone: s.alone,
		seam:  func(w *seam) (string, error) { return s.observe(w) },
		api: func(open func() (api, error)) (string, error) {
			a, err := open()
			if err != nil {
				return "", err
			}
			defer a.close()
			return s.observe(&watch{api: a})
		},
	}
}

// observe returns the conditions that were reported, and those that hold afterwards.
func (s situation) observe(w watcher) (string, error) {
	return run(func(c *scope) string {
		subject, act := s.setUp(c)
		c.check("watch", w.start(subject.Handle()))
		act()
		first := patient
		if !s.silent {
			first = limit
		}
		reported, any := w.reported(first)
		if !any && !s.silent {
			c.check("report", errNone)
		}
		if s.ends {
			return reported
		}
		return reported + " → " + w.holds()
	})
}
