// Package socknotify tells a program when its sockets are ready: Windows' socket state
// notifications, on every system that Go servers run on.
//
// A [Port] is what Winsock builds from an I/O completion port and ProcessSocketNotifications.
// Sockets are registered with it in batches, each with a completion key, an event filter, an
// operation and a trigger; any number of goroutines dequeue notifications from it; and the
// [EventRemove] notification is the last word about a registration: after it nothing more comes
// for its key, and what the key points to may be freed.
//
//	port, err := socknotify.New[*client]()
//	...
//	regs := []socknotify.Registration[*client]{
//		socknotify.Enable(c.socket, c, socknotify.EventIn|socknotify.EventHangup,
//			socknotify.TriggerLevel|socknotify.TriggerOneShot),
//	}
//	ready := make([]socknotify.Notification[*client], 64)
//	n, err := port.Process(regs, ready, time.Second) // registers and dequeues
//
// The recommended pattern for several goroutines on one port is level-triggered and one-shot:
// each notification belongs to the one goroutine that dequeued it, until that goroutine enables
// the registration again in the call in which it dequeues the next.
//
// Sockets must be non-blocking (those of package net and of package sock are). The full contract,
// in numbered sentences that the documentation here refers to (P1, G4, T3 and so on), is in
// docs/contract.md.
package socknotify
