package conn

import (
	"crypto/tls"
	"net"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving/clock"
	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
	"github.com/socknotify/socknotify/internal/serving/wheel"
	"github.com/socknotify/socknotify/server/internal/engine"
	"github.com/socknotify/socknotify/sock"
)

// Init prepares everything that is not exported, and the wheel.
func (s *Shared) Init(server Server) {
	s.server = server
	s.extras.New = func() any { return new(extra) }
	s.inputs.New = func() any { return new(input) }
	s.tlsOptions = tlsrecord.Options{
		Ahead: tlsBuffers,
		Keep:  func(tls.ConnectionState) bool { return s.CryptoTLS },
		Kept:  func(error) { s.Counts.CryptoTLS.Add(1) },
	}
	s.traffic = new(traffic)
	s.handshakes.init()
	s.ticker = new(Conn)
	s.Wheel = wheel.New(clock.Current(), engine.Tick,
		func(c *Conn) *wheel.Timer[*Conn] { return &c.timer }, s.expired)
}

// Init prepares a listener. accepted handles the notifications of connections that a port has
// accepted.
func (l *Listener) Init(s *Shared, accepted func(o *Owner, nt *socknotify.Notification[*Key])) {
	l.shared, l.accepted = s, accepted
	l.listener, l.key.link = l, &l.link
}

// Init prepares a new connection, and Start starts it. The caller owns it.
func (c *Conn) Init(l *Listener, held sock.Held) {
	s := l.shared
	c.link, c.held = &l.link, held
	c.word.Store(wOwned)
	if engine.Limits(s.ReadRate) || engine.Limits(s.WriteRate) {
		c.ensureExtra().rates = &rates{flowOf(s.ReadRate, wNoIn), flowOf(s.WriteRate, wNoOut)}
		c.rated = true
	}
	c.active.Store(uint32(s.Wheel.Now()))
	if l.Preamble {
		*c.ensureOpening() = opening{header: true, remote: c.RemoteAddr(), local: c.LocalAddr()}
		c.word.Or(wHandshake)
	}
	if l.TLS != nil {
		c.startTLS(l.TLS)
	}
}

// PostStart has a worker of the connection's port start it.
func (c *Conn) PostStart() { c.shared().Ports[c.Shard].Post(c.Key(), started) }

// started is the data of the post that has a connection started.
const started = 1

// SetWrapper sets what is closed when the socket was closed, before the connection is started.
func (c *Conn) SetWrapper(wrapper net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ensureLayers().wrapper = wrapper
}

// Start starts to serve a connection that Init has prepared.
func (o *Owner) Start(c *Conn) {
	s := o.shared
	word := c.word.Load()
	if word&wHandshake != 0 {
		c.mu.Lock()
		c.extra.opening.began = uint32(s.Wheel.Now())
		c.mu.Unlock()
		if s.HandshakeTimeout > 0 {
			s.Wheel.Set(c, s.HandshakeTimeout)
		}
	}
	switch {
	case word&wHandshake == 0:
		o.open(c)
	case c.extra.opening.header:
		o.preamble(c, true)
	}
	o.release(c)
}
