package conn

import (
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
	"github.com/socknotify/socknotify/internal/serving/wheel"
	"github.com/socknotify/socknotify/server/internal/engine"
)

// Options are the options of a server.Server that its connections use, under the names that they
// have there. No option is 0 for its default.
type Options struct {
	BufferSize       int
	MaxMessage       int
	MaxQueued        int
	SlowPolicy       serving.SlowPolicy
	MaxQueuedTotal   int64
	ReadRate         serving.Rate
	WriteRate        serving.Rate
	IdleTimeout      time.Duration
	SilentIsIdle     bool
	ReadTimeout      time.Duration
	WriteTimeout     time.Duration
	HandshakeTimeout time.Duration
	MaxHandshakes    int
	TimeCalls        bool
	CryptoTLS        bool
}

// A Server is what connections call: the handler, and the server that they belong to. The owner of
// a connection calls it.
type Server interface {
	Open(c *Conn) error
	Data(c *Conn, buf []byte) error
	Writable(c *Conn) error
	Close(c *Conn, cause error)

	// Preamble is Server.Preamble.
	Preamble(remote, local net.Addr, b []byte) (Preamble, error)
	// Enter counts a connection for its address, which is known when its header is complete. The
	// error is a Refusal.
	Enter(c *Conn, remote net.Addr) error
	// Left is called when the socket was closed, at the end.
	Left(c *Conn)
	// Watch is called with a tick of the wheel, after SetTicker.
	Watch()
}

// A Shared is what the connections of a server share.
type Shared struct {
	Options
	engine.Journal
	Ports     []*socknotify.Port[*Key] // by Conn.Shard
	KeepAlive net.KeepAliveConfig      // of TCP connections
	Wheel     *wheel.Wheel[*Conn]
	Counts    Counts
	Running   sync.WaitGroup // goroutines of workers and of handshakes

	server  Server
	ticker  *Conn // stands for the server in the wheel
	traffic *traffic

	extras     sync.Pool
	inputs     sync.Pool
	buffers    buffers
	tlsOptions tlsrecord.Options
	handshakes handshakes
}

// SetTicker has Watch called with a tick, d from now.
func (s *Shared) SetTicker(d time.Duration) { s.Wheel.Set(s.ticker, d) }

// StopTicker ends that.
func (s *Shared) StopTicker() { s.Wheel.Stop(s.ticker) }

// Refused counts and logs a connection that is refused because of a limit.
func (s *Shared) Refused(remote any, err error) {
	n := &s.Counts.Refused
	if err == ErrTooManyAddr {
		n = &s.Counts.RefusedPerAddr
	}
	n.Add(1)
	s.Log(slog.LevelWarn, "connection refused", "remote", remote, "err", err)
}

// A Listener is what connections know of the listener that they come from. Its key on a port is
// the address of key, a Conn without a socket.
type Listener struct {
	TCP      bool
	TLS      *tls.Config // nil without TLS
	Preamble bool        // connections begin with a header

	link     // of its plain connections
	shared   *Shared
	accepted func(o *Owner, nt *socknotify.Notification[*Key])
	key      Conn
}

// Key returns the key of a listener.
func (l *Listener) Key() *Key { return l.key.Key() }

// Counts are the counters of a server. Each event is counted in one of them, and sums are made by
// Stats, so that no difference of two counters is needed, which could decrease while both increase.
type Counts struct {
	Accepted, Refused, RefusedPerAddr, Stuck, Overloads atomic.Uint64
	Idle, Slow, Stalled, LateHandshakes                 atomic.Uint64 // timeouts
	Handshakes, RejectedHandshakes, RejectedHeaders     atomic.Uint64
	EvictedHandshakes, CryptoTLS                        atomic.Uint64
	Queued, Handshaking, Hijacked                       atomic.Int64
}

// A Preamble is a server.Preamble.
type Preamble struct {
	N             int
	Remote, Local net.Addr
	Value         any
}

// Traffic returns the bytes that were received and sent. Shared was prepared by Init, or the zero
// value.
func (s *Shared) Traffic() (in, out uint64) {
	if t := s.traffic; t != nil {
		for i := range t {
			in += t[i].in.Load()
			out += t[i].out.Load()
		}
	}
	return in, out
}
