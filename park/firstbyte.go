package park

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/serving/parking"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
)

// A ListenerConfig configures a [FirstByteListener]. The zero value of a field is its default, and a
// negative number means none.
type ListenerConfig struct {
	// IdleTimeout closes a connection that has sent nothing for this time after it was accepted; 0 means 30 seconds. It is
	// 0.2 seconds late, and some per cent on a busy machine.
	IdleTimeout time.Duration
	// MaxWaiting bounds the number of connections that have sent nothing yet, or that the server has not taken yet; 0 means
	// 65,536. At the bound a new connection replaces the one that has been silent for the longest time. If all have sent
	// something, new connections stay in the backlog of the system.
	MaxWaiting int

	// Backend, Unwrap, Name and Logger are as in Config.
	Backend string
	Unwrap  func(net.Conn) net.Conn
	Name    string
	Logger  *slog.Logger
}

const (
	defaultFirstByte  = 30 * time.Second
	defaultMaxWaiting = 65536
)

// Listener is for protocols in which the client speaks first, such as HTTP, TLS, gRPC and MQTT: with one in which the
// server does, such as SMTP, FTP, MySQL and some SSH clients, connections would hang until the timeout closes them.
//
// It returns a listener whose Accept returns a connection of l once its first byte has arrived. So connections that stay
// silent cost a server no goroutine, and need no change in the server. Connections wait for 30 seconds; a [ListenerConfig]
// has this and other settings.
func Listener(l net.Listener) *FirstByteListener { return ListenerConfig{}.Listener(l) }

// Listener is for protocols in which the client speaks first, as the function [Listener] is. The listener that it returns
// owns l. Errors in c, and that of creating a port, are returned by Accept.
func (c ListenerConfig) Listener(l net.Listener) *FirstByteListener {
	f := &FirstByteListener{l: l, timeout: serving.Or(c.IdleTimeout, defaultFirstByte),
		max: serving.Or(c.MaxWaiting, defaultMaxWaiting)}
	f.changed.L = &f.mu
	f.silent.prev, f.silent.next = &f.silent, &f.silent
	if l == nil {
		f.failed = fmt.Errorf("park: %w: nil listener", socknotify.ErrInvalid)
	} else {
		f.closeBelow = sync.OnceValue(l.Close)
		f.lot, f.failed = New(Config{Backend: c.Backend, Unwrap: c.Unwrap, Name: c.Name, Logger: c.Logger})
	}
	return f
}

// A FirstByteListener is a listener that accepts connections once their first byte, or their end, has arrived. Its methods
// may be called concurrently.
//
// A connection that was not wrapped is the one that the listener below has returned. A wrapped one that held bytes is a
// [*Conn]. Connections that cannot be parked are returned at once.
type FirstByteListener struct {
	l       net.Listener
	lot     *Lot
	timeout time.Duration // 0 is none
	max     int           // of n; 0 is none

	once       sync.Once
	closeBelow func() error // closes l, once; nil without l

	mu       sync.Mutex
	changed  sync.Cond // ready, closed or n has changed
	ready    []accepted
	failed   error // the listener's permanent error
	draining bool  // the connections that were accepted are still returned after failed
	closed   bool
	silent   firstByte // the head of a ring of the connections that wait, oldest first
	n        int       // connections in silent and in ready
}

// An accepted is a result of Accept.
type accepted struct {
	conn net.Conn
	err  error
}

// A firstByte is a connection that has sent nothing yet.
type firstByte struct {
	in         *FirstByteListener
	conn       *parking.Conn
	prev, next *firstByte // in the ring; nil if it is not there
}

// Accept returns the next connection that has sent something. It fails with net.ErrClosed after Close, and with the errors
// of the listener below.
func (f *FirstByteListener) Accept() (net.Conn, error) {
	f.once.Do(func() {
		if f.failed == nil {
			go f.accept()
		}
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		switch {
		case f.closed:
			return nil, &net.OpError{Op: "accept", Net: "park", Err: net.ErrClosed}
		case len(f.ready) > 0:
			a := f.ready[0]
			f.ready[0] = accepted{}
			f.ready = f.ready[1:]
			if a.conn != nil {
				f.n--
			}
			f.changed.Broadcast()
			return a.conn, a.err
		case f.failed != nil && !(f.draining && f.n > 0):
			return nil, f.failed
		}
		f.changed.Wait()
	}
}

// Addr returns the address of the listener below.
func (f *FirstByteListener) Addr() net.Addr {
	if f.l == nil {
		return nil
	}
	return f.l.Addr()
}

// Unwrap returns the listener below.
func (f *FirstByteListener) Unwrap() net.Listener { return f.l }

// Stats returns the counters of the lot in which the connections wait. Parked is the number of those that have sent
// nothing, and Expired counts those that IdleTimeout has closed.
func (f *FirstByteListener) Stats() Stats {
	if f.lot == nil {
		return Stats{}
	}
	return f.lot.Stats()
}

// stopAccepting closes the listener below, for Shutdown of a server of this package. Accept goes on until it has returned the
// connections that were accepted. Those that stay silent are closed after serving.FirstRequestTime. Close must follow.
func (f *FirstByteListener) stopAccepting() {
	f.mu.Lock()
	accepting := f.failed == nil && !f.closed
	f.draining = true
	f.changed.Broadcast()
	f.mu.Unlock()
	if accepting {
		f.lot.engine.Clock().AfterFunc(serving.FirstRequestTime, func() {
			for f.closeOldest(func() bool { return true }) {
			}
		})
		f.closeBelow()
	}
}

// stopAccepting closes a listener for Shutdown. The server accepts until Accept fails.
func stopAccepting(l net.Listener) {
	if f, ok := l.(*FirstByteListener); ok {
		f.stopAccepting()
	} else {
		l.Close()
	}
}

// Close closes the listener and the connections that Accept has not returned.
func (f *FirstByteListener) Close() error {
	f.once.Do(func() {}) // no start after it
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return net.ErrClosed
	}
	f.closed = true
	left := f.ready
	f.ready = nil
	f.changed.Broadcast()
	f.mu.Unlock()
	var err error
	if f.closeBelow != nil {
		err = f.closeBelow()
	}
	for _, a := range left {
		if a.conn != nil {
			f.lot.engine.Guard(a.conn, func() { a.conn.Close() })
		}
	}
	if f.lot != nil {
		f.lot.Close()
	}
	return err
}

// accept accepts connections until a permanent error.
func (f *FirstByteListener) accept() {
	admitting := false
	defer func() {
		if admitting { // the program's Unwrap has called runtime.Goexit
			go f.accept()
		}
	}()
	admit := func(conn net.Conn) {
		admitting = true
		f.admit(conn)
		admitting = false
		f.awaitRoom()
	}
	err := accept(f.l, f.lot.engine.Ended(), admit, func(err error, _ time.Duration) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.ready = append(f.ready, accepted{err: err})
		f.changed.Broadcast()
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = err
	f.changed.Broadcast()
}

// awaitRoom waits until there is room for another connection, or a silent one to make it, or the listener is closed.
func (f *FirstByteListener) awaitRoom() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.closed && f.full() && f.silent.next == &f.silent {
		f.changed.Wait()
	}
}

// full reports whether there is no room for another connection. The caller holds f.mu.
func (f *FirstByteListener) full() bool { return f.max > 0 && f.n >= f.max }

// makeRoom closes the connection that has been silent for the longest time if there is no room for another.
func (f *FirstByteListener) makeRoom() {
	f.closeOldest(f.full)
}

// closeOldest closes the connection that has been silent for the longest time, if cond returns true, which it calls with f.mu
// held. It reports whether it has closed one.
func (f *FirstByteListener) closeOldest(cond func() bool) bool {
	f.mu.Lock()
	w := f.silent.next
	found := cond() && f.unlink(w)
	f.mu.Unlock()
	if found {
		f.lot.engine.Guard(w.conn, func() { f.lot.CloseConn(w.conn) })
	}
	return found
}

// admit parks a connection until its first byte.
func (f *FirstByteListener) admit(conn net.Conn) {
	f.makeRoom()
	w := &firstByte{in: f, conn: parking.Wrap(conn)}
	f.mu.Lock()
	w.prev, w.next = f.silent.prev, &f.silent
	w.prev.next, w.next.prev = w, w
	f.n++
	f.mu.Unlock()
	err := errPanicked // or runtime.Goexit was called
	defer func() {
		switch {
		case err == nil:
		case errors.Is(err, parking.ErrUnparkable):
			f.push(w)
		default:
			f.remove(w)
			f.lot.engine.Guard(conn, func() { w.conn.Close() })
		}
	}()
	f.lot.engine.Guard(conn, func() {
		err = f.lot.engine.ParkWith(w.conn, parking.Options{IdleTimeout: f.timeout, Fresh: true}, w.arrived)
	})
}

// arrived is the function of the parked connection.
func (w *firstByte) arrived(net.Conn) {
	f, why := w.in, parking.Why(w.conn)
	closed := why == parking.Evicted || !f.waits(w)
	if !closed { // otherwise Unpark would look for the connection in the whole table
		f.lot.engine.Guard(w.conn, func() { f.lot.Unpark(w.conn) }) // the server may park it elsewhere
	}
	if !closed && why != parking.Expired {
		f.push(w)
		return
	}
	f.remove(w)
	f.lot.engine.Guard(w.conn, func() { w.conn.Close() })
}

// waits reports whether w is still in the ring. If not, makeRoom has closed its connection.
func (f *FirstByteListener) waits(w *firstByte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return w.prev != nil
}

// push makes a connection ready for Accept, unless makeRoom has closed it.
func (f *FirstByteListener) push(w *firstByte) {
	conn := net.Conn(w.conn)
	if !parking.HasBytesAhead(w.conn) {
		conn = w.conn.Conn
	}
	f.mu.Lock()
	open := f.unlink(w) && !f.closed
	if open {
		f.n++
		f.ready = append(f.ready, accepted{conn: conn})
		f.changed.Broadcast()
	}
	f.mu.Unlock()
	if !open {
		f.lot.engine.Guard(conn, func() { w.conn.Close() })
	}
}

func (f *FirstByteListener) remove(w *firstByte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unlink(w)
}

// unlink removes w from the ring. It reports whether w was there; the head of the ring is not. The caller holds f.mu.
func (f *FirstByteListener) unlink(w *firstByte) bool {
	if w.prev == nil || w == &f.silent {
		return false
	}
	w.prev.next, w.next.prev = w.next, w.prev
	w.prev, w.next = nil, nil
	f.n--
	f.changed.Broadcast()
	return true
}
