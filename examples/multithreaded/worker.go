package multithreaded

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// dequeueCount is how many notifications a worker takes at a time.
const dequeueCount = 3

// A worker is one of the goroutines that wait on the port.
type worker struct {
	server        *server
	notifications int
	removals      int
	bytes         int64
	// regs is what the next call has to register: up to two for each notification, because a
	// listener's makes a connection as well.
	regs  []socknotify.Registration[key]
	chunk [512]byte
}

// run processes notifications until it is told to exit.
func (w *worker) run(ctx context.Context) {
	w.regs = make([]socknotify.Registration[key], 0, 2*dequeueCount)
	ready := make([]socknotify.Notification[key], dequeueCount)
	for {
		n, err := w.server.port.ProcessContext(ctx, w.regs, ready)
		w.cleanUp() // registrations were processed even if nothing was dequeued
		if err != nil {
			w.server.fail(err)
			return
		}
		w.regs = w.regs[:0]
		leave := false
		for _, nt := range ready[:n] {
			switch k := nt.Key.(type) {
			case exit:
				leave = true
			case *listener:
				w.notifications++
				w.accept(k)
			case *connection:
				if nt.Events == socknotify.EventRemove {
					w.removals++
					w.server.free(k)
					continue
				}
				w.notifications++
				w.receive(k)
			}
		}
		if leave {
			w.server.sendExit()
			return
		}
	}
}

// cleanUp deals with registrations that failed. They are all one-shot, so nobody else can hold a
// notification of one that could not be enabled: it is still this worker's.
func (w *worker) cleanUp() {
	for i := range w.regs {
		r := &w.regs[i]
		if r.Result == nil {
			continue
		}
		w.server.fail(r.Result)
		c, ok := r.Key.(*connection)
		if !ok {
			continue // the listener is Run's
		}
		remove := []socknotify.Registration[key]{socknotify.Remove[key](r.Conn)}
		if _, err := w.server.port.Process(remove, nil, 0); err != nil || remove[0].Result != nil {
			// It was never registered, or is not any more: no EventRemove will come.
			w.server.free(c)
		}
	}
}

// accept takes one connection. The system may have more, of which the listener is told at once when
// it is enabled again.
func (w *worker) accept(l *listener) {
	socket, err := l.socket.Accept()
	switch {
	case errors.Is(err, sock.ErrWouldBlock):
		// The client gave up in between.
	case err != nil:
		w.server.fail(fmt.Errorf("accept: %w", err))
		return
	default:
		c := &connection{socket: socket}
		w.server.opened(c)
		w.regs = append(w.regs, enableConnection(c))
		l.left--
	}
	if l.left > 0 {
		w.regs = append(w.regs, enableListener(l))
	}
}

// receive takes one chunk. A hang-up may come before the last data was received, so it is the receive
// that says when the connection has ended; until then the level notifies again. The events are but a
// hint what the receive will find.
func (w *worker) receive(c *connection) {
	n, err := c.socket.Recv(w.chunk[:])
	w.bytes += int64(n)
	if errors.Is(err, sock.ErrWouldBlock) {
		err = c.socket.Err() // nil where the notification was for nothing
	}
	switch {
	case err == nil:
		w.regs = append(w.regs, enableConnection(c))
	case errors.Is(err, io.EOF):
		w.remove(c)
	default:
		w.server.remember(fmt.Errorf("receive: %w", err)) // this connection's failure alone
		w.remove(c)
	}
}

// remove ends the registration with the next call. An entry takes one operation, so a connection is
// either enabled again or removed.
func (w *worker) remove(c *connection) {
	r := socknotify.Remove[key](c.socket)
	r.Key = c // not read by OpRemove: for cleanUp
	w.regs = append(w.regs, r)
}
