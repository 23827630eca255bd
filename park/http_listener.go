package park

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"

	"github.com/socknotify/socknotify/internal/wheel"
)

// A listener gives net/http its connections: those that are accepted, and those that were parked.
type listener struct {
	net.Listener
	server *HTTPServer
	lot    *Lot
	linger *wheel.Wheel[*session]
	config *serverTLS
	ctx    context.Context // with which net/http serves
	begin  sync.Once

	mu     sync.Mutex
	queue  []arrival
	young  map[*link]struct{} // whose handshake, or first byte, a goroutine of ours waits for
	closed bool
	signal chan struct{} // something is in the queue; closed with the listener
}

// An arrival is a connection for net/http, or why there is none.
type arrival struct {
	conn net.Conn
	link *link
	err  error
	seen chan struct{} // closed when net/http has the error
}

func newListener(s *HTTPServer, in net.Listener, lot *Lot, config *serverTLS) *listener {
	return &listener{Listener: in, server: s, lot: lot, linger: newLinger(s.linger()), config: config,
		young: make(map[*link]struct{}), signal: make(chan struct{}, 1)}
}

// Accept returns the next connection.
func (l *listener) Accept() (net.Conn, error) {
	l.begin.Do(func() {
		if l.config != nil {
			l.config.offer(l.server.Server)
		}
		go l.accept()
	})
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return nil, &net.OpError{Op: "accept", Net: l.Addr().Network(), Addr: l.Addr(), Err: net.ErrClosed}
		}
		if len(l.queue) > 0 {
			a := l.queue[0]
			l.queue[0] = arrival{}
			l.queue = l.queue[1:]
			l.mu.Unlock()
			if a.seen != nil {
				close(a.seen)
			}
			return a.conn, a.err
		}
		l.mu.Unlock()
		<-l.signal
	}
}

// push queues for Accept. What comes too late is closed.
func (l *listener) push(a arrival) {
	l.mu.Lock()
	delete(l.young, a.link)
	if !l.closed {
		l.queue = append(l.queue, a)
		select {
		case l.signal <- struct{}{}:
		default:
		}
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.drop(a)
}

func (l *listener) drop(a arrival) {
	switch {
	case a.seen != nil:
		close(a.seen)
	case a.link != nil:
		l.server.native.Delete(a.conn)
		a.link.finish()
	}
}

// accept is the goroutine that accepts.
func (l *listener) accept() {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			seen := make(chan struct{})
			l.push(arrival{err: err, seen: seen})
			<-seen
			//lint:ignore SA1019 net/http goes by it
			if e, ok := err.(net.Error); ok && e.Temporary() {
				continue // net/http takes its time before it accepts again
			}
			return
		}
		l.admit(conn)
	}
}

func (l *listener) admit(conn net.Conn) {
	if l.config != nil {
		conn = tls.Server(conn, l.config.config)
	}
	k := newLink(l, conn)
	if f := l.server.connContext; f != nil {
		if k.ctx = f(l.ctx, conn); k.ctx == nil {
			panic("ConnContext returned nil") // as net/http does
		}
	}
	l.server.announce(conn, http.StateNew)
	t, ok := conn.(*tls.Conn)
	if !ok {
		l.push(arrival{conn: k.newSession(nil, 0), link: k})
		return
	}
	if l.rear(k) {
		go k.handshake(t)
	}
}

// rear has Close close a connection that a goroutine of ours waits for, until grown. If the listener is
// closed already the connection is as well.
func (l *listener) rear(k *link) bool {
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.young[k] = struct{}{}
	}
	l.mu.Unlock()
	if closed {
		k.finish()
	}
	return !closed
}

func (l *listener) grown(k *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.young, k)
}

// Close closes the listener, and every connection that net/http does not have.
func (l *listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	left := l.queue
	l.queue = nil
	for k := range l.young {
		conn := k.conn
		if t, ok := conn.(*tls.Conn); ok {
			conn = t.NetConn() // without waiting for the handshake
		}
		conn.Close()
	}
	close(l.signal)
	l.mu.Unlock()
	err := l.Listener.Close()
	for _, a := range left {
		l.drop(a)
	}
	l.lot.Close()
	if l.linger != nil {
		l.linger.Close()
	}
	return err
}
