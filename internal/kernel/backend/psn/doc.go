// Package psn is the backend on ProcessSocketNotifications of Windows and an I/O completion port.
//
// Its logic is independent of the system: it calls a System, which is Windows, or a fake in tests, so that
// all of it runs everywhere. This comment describes how the native semantics are mapped to the seam's.
//
// # Trigger
//
// A handle is registered one-shot by level. This is what the seam describes for Edges false: a report
// disables the registration, and enabling it again polls the socket. A native edge cannot serve Edges true.
// It is an edge of a condition that begins to hold, so data that arrives at a socket which has not been
// drained makes none, and a condition that holds when the registration is enabled makes none either. The
// price is that every enable needs a system call (X5).
//
// # Keys
//
// The native key is fixed when a registration is created, and the token changes with every operation.
// Therefore the key is a serial number that identifies an entry, and the entry has the token. A number is
// never used twice. A packet with an unknown number belongs to a registration that has ended, perhaps with
// its socket, and is dropped (G9).
//
// # Packets of an earlier arming
//
// At most one packet per registration is queued. It may have been queued, or dequeued by the goroutine in
// Park, before an operation, and be processed after it. Therefore an entry that is changed while a report
// is due is marked stale, and its next packet is not reported. The delivery of that packet may have ended
// the one shot, of the earlier arming or of the latest one; the reference leaves that open. So the
// registration is enabled again, in the call that continues to dequeue, and conditions that hold come as
// another packet. If enabling fails, the first packet is reported after all, which may be spurious, but
// loses nothing.
//
// The same is done with every packet if the system's packets have only the conditions of the time when they
// were queued (Snapshots).
//
// # Whether the number still names the socket
//
// Closing a socket ends its registration without a packet. Enabling the number afterwards creates a
// registration, for any socket that has the number. Disabling creates nothing and fails if there is no
// registration. So Set is two registrations in one call, disable and enable, and the result of the first
// shows whether the second created a registration. If it did, that registration is removed again, and Set
// is Absent. The backend does not rely on error codes: if an operation fails, it asks the system whether
// the handle is a socket at all. It is not documented that disabling fails without a registration, so Probe
// verifies it before the backend is used.
//
// The number may be closed and used again between the two. If the program enables, it has named the socket
// that has the number by then. But if the layer above or the backend polls again on its own, the socket is
// pinned, and the number is compared with it afterwards.
//
// If the system has no memory for the first registration but has it for the second, the result shows
// nothing. An enable of the program then makes a new registration of the socket that it names. A
// registration that the backend has enabled on its own counts as the old socket until the program's next
// enable.
//
// # Failures
//
// A call that fails as a whole has changed nothing. One socket may be the cause, so each change is then made
// in a call of its own. Codes that mean a lack of memory refuse the change, which may be tried again; a wait
// is tried again after a millisecond.
//
// # Removal
//
// Delete removes natively, so that any other port may register the socket, and does not wait for the
// removal's own packet. That packet has an unknown key or changes nothing: the layer above makes its
// EventRemove without it. If the system refuses a registration until that packet was dequeued, Add
// dequeues it, also from another port's queue, and tries again.
//
// # Pending packets
//
// Packets that were dequeued and not yet reported are pending: the packet that ended a Park, and packets that
// were queued in front of a packet that was waited for. Poll takes them before it calls the system. If a
// goroutine leaves pending packets while another one is parked, it wakes the parked one.
package psn
