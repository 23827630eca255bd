package multithreaded

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// dequeueCount is how many notifications a worker dequeues at a time.
const dequeueCount = 3

// A worker is one of the goroutines that wait on the port.
type worker struct {
	server        *server
	notifications int
	removals      int
	bytes         int64
	// regs are the registrations of the next call: up to two for each notification, because one of a listener adds a
	// connection.
	regs  []socknotify.Registration[key]
	chunk [512]byte
}

// run handles notifications until it receives the exit message.
func (w *worker) run(ctx context.Context) {
	w.regs = make([]socknotify.Registration[key], 0, 2*dequeueCount)
	ready := make([]socknotify.Notification[key], dequeueCount)
	for {
		n, err := w.server.port.ProcessContext(ctx, w.regs, ready)
		w.cleanUp() // the registrations are done even if nothing was dequeued
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

// cleanUp handles registrations that failed. All are one-shot, so no other worker can hold a notification of a
// connection that could not be enabled: it still belongs to this worker.
func (w *worker) cleanUp() {
	for i := range w.regs {
		r := &w.regs[i]
		if r.Result == nil {
			continue
		}
		w.server.fail(r.Result)
		c, ok := r.Key.(*connection)
		if !ok {
			continue // Run closes the listener
		}
		remove := []socknotify.Registration[key]{socknotify.Remove[key](r.Conn)}
		if _, err := w.server.port.Process(remove, nil, 0); err != nil || remove[0].Result != nil {
			// It was never registered, or is not any more: no EventRemove will come.
			w.server.free(c)
		}
	}
}

// accept accepts one connection. If there are more, enabling the listener again notifies at once.
func (w *worker) accept(l *listener) {
	socket, err := l.socket.Accept()
	switch {
	case errors.Is(err, sock.ErrWouldBlock):
		// The client has given up.
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

// receive receives one chunk. A hang-up may be notified before the last data was received, so only the receive says
// when the connection has ended. Until then the level notifies again. The events are only a hint.
func (w *worker) receive(c *connection) {
	n, err := c.socket.Recv(w.chunk[:])
	w.bytes += int64(n)
	if errors.Is(err, sock.ErrWouldBlock) {
		err = c.socket.Err() // nil if there was no error
	}
	switch {
	case err == nil:
		w.regs = append(w.regs, enableConnection(c))
	case errors.Is(err, io.EOF):
		w.remove(c)
	default:
		w.server.remember(fmt.Errorf("receive: %w", err)) // ends this connection only
		w.remove(c)
	}
}

// remove removes the registration with the next call. An entry has one operation, so a connection is either enabled
// again or removed.
func (w *worker) remove(c *connection) {
	r := socknotify.Remove[key](c.socket)
	r.Key = c // read by cleanUp, not by OpRemove
	w.regs = append(w.regs, r)
}
