// Package socknotify notifies a program when its sockets are ready: Windows' socket state
// notifications, also on Linux, macOS and the BSDs.
//
// Most programs use what is built on it: package park for net/http and for blocking handlers,
// package websocket, and package server for protocols. Use a port itself for an event loop of your
// own, or for a program that is written for Windows' completion ports.
//
// A [Port] is what Winsock builds from an I/O completion port and ProcessSocketNotifications.
// Sockets are registered with it in batches, each with a key, an event filter, an operation and a
// trigger. Any number of goroutines dequeue notifications from it. The [EventRemove] notification
// is the last one of a registration that the program removes: nothing more comes for its key, and
// what the key points to may be freed.
//
//	port, err := socknotify.New[*client]()
//	...
//	regs := []socknotify.Registration[*client]{
//		socknotify.Enable(c.conn, c, socknotify.EventIn|socknotify.EventHangup,
//			socknotify.TriggerLevel|socknotify.TriggerOneShot),
//	}
//	ready := make([]socknotify.Notification[*client], 64)
//	n, err := port.Process(regs, ready, time.Second) // registers and dequeues
//
// A registration names its socket by a connection or listener of package net, by a socket of
// package [github.com/socknotify/socknotify/sock], or by a raw handle. The socket must be
// non-blocking; those of the two packages are.
//
// Four calls dequeue: [Port.Process] waits for a limited time, [Port.ProcessContext] until a
// context is done, and both register first; [Port.Wait] only waits; [Port.All] is an iterator.
//
// The recommended pattern for several goroutines on one port is level-triggered and one-shot.
// Each notification then belongs to the goroutine that dequeued it, until that goroutine enables
// the registration again, in the call in which it dequeues the next.
//
// Overlapped operations that complete on a port are in package
// [github.com/socknotify/socknotify/overlapped]. The full contract is in docs/contract.md.
package socknotify

// The files, in the order in which a call passes them:
//
//	port.go          a Port from New to Close
//	registration.go  what a call registers, and values of the API; errors.go: its errors
//	process.go       the calls that register and dequeue
//	queue.go         posts, removals and completions, in order
//	typed.go         what knows the type of the keys, for internal/kernel/port, which does not
