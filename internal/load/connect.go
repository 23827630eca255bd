package load

import (
	"fmt"
	"net/netip"

	"github.com/socknotify/socknotify/sock"
)

// connectsAtOnce bounds the connects that a worker has under way, to not overflow the backlog of the listener.
const connectsAtOnce = 64

// connect makes the connections of the worker. Those that fail are counted as errors.
func (w *worker) connect() {
	next := 0
	w.connectUntil = w.now() + int64(w.Timeout)
	for w.broken == nil {
		for ; next < len(w.conns) && w.connecting < connectsAtOnce; next++ {
			w.dial(&w.conns[next], nil)
		}
		if w.connecting == 0 && next == len(w.conns) {
			return // no handshake is under way
		}
		if w.now() >= w.connectUntil || w.stopped.Load() {
			break
		}
		for _, nt := range w.process(w.connectUntil) {
			w.established(nt.Key)
		}
		w.endShakes()
	}
	w.shaking.Wait() // handshakes end by the timeout or with the run
	w.endShakes()
	for i := range w.conns {
		c := &w.conns[i]
		switch {
		case c.connected || i < next && c.sock == nil: // connected, or failed
		case w.stopped.Load():
			w.drop(c)
		default:
			w.fail(c, fmt.Errorf("connect: not done after %v", w.Timeout))
		}
	}
}

// established ends a connect, which has succeeded or failed.
func (w *worker) established(c *conn) {
	w.connecting--
	if err := c.sock.Err(); err != nil {
		w.drop(c)
		c.addr++
		w.dial(c, fmt.Errorf("connect: %w", err))
		return
	}
	c.filter = 0
	w.succeed(c)
}

// reconnect makes a connection again. Its registration ends with its socket.
func (w *worker) reconnect(c *conn) {
	c.sock.Close()
	w.live--
	c.sock, c.connected = nil, false
	c.issued, c.begun, c.done, c.sent, c.got = 0, 0, 0, 0, 0
	w.dial(c, nil)
	if c.connected {
		w.later(c, w.now())
	}
}

// dial begins a connect to the first address that does not fail at once.
func (w *worker) dial(c *conn, err error) {
	for ; c.addr < len(w.addrs); c.addr++ {
		switch c.sock, err = w.open(w.addrs[c.addr]); err {
		case nil:
			w.succeed(c)
			return
		case sock.ErrWouldBlock:
			w.connecting++
			w.arm(c)
			return
		}
	}
	w.fail(c, err)
}

// open returns a connected socket, or with sock.ErrWouldBlock one whose connect is in progress.
func (w *worker) open(addr netip.AddrPort) (*sock.Socket, error) {
	s, err := sock.New(sock.NetworkOf(addr, sock.TCP4, sock.TCP6))
	if err != nil {
		return nil, err
	}
	// A request must not wait until earlier ones are acknowledged.
	err = s.SetNoDelay(true)
	if err == nil && (w.Reset || w.Reconnect) {
		err = s.SetLinger(0)
	}
	if err == nil {
		err = s.Connect(addr)
	}
	if err != nil && err != sock.ErrWouldBlock {
		s.Close()
		return nil, err
	}
	return s, err
}

func (w *worker) succeed(c *conn) {
	if w.TLS != nil {
		w.shake(c)
		return
	}
	c.connected = true
	w.live++
}
