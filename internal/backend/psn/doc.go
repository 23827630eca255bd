// Package psn is the backend of Windows' own ProcessSocketNotifications on an I/O completion port.
//
// Its logic knows no system: it asks a System, which is Windows, or in tests a fake, so that all of it
// runs everywhere. How the native semantics become the seam's is said here and nowhere else.
//
// # Trigger
//
// A handle is registered one-shot by level. That is the seam's "silent after a report until the next Set,
// which looks again" to the letter: the report disables the registration, and enabling looks at what
// holds. Edges is therefore false. A native edge would not do for true: it is one of a condition that
// begins to hold, so what arrives at a socket that has not been drained makes none, and what held when
// it was enabled makes none either. The price is a call for every enable: none is free (X5).
//
// # Keys
//
// The native key is fixed when a registration is created, and the token changes with every operation. So
// the key is a serial number that stands for an entry, and the entry has the token. A number is never
// used twice: a packet with one that is not known any more is of a registration that has ended, perhaps
// with its socket, and is dropped (G9).
//
// # Packets of an earlier arming
//
// At most one packet per registration is queued, and it may have been queued, or have been dequeued by
// the goroutine in Park, before the operation that it comes after. An entry that is changed while a
// report was still due is therefore loose. The packet that then comes is not reported. But its delivery
// may be what ended the one shot, be it of the earlier arming or of this one, which the reference leaves
// open. So the registration is enabled again, in the call that goes on dequeuing, and what holds comes as
// a packet of its own. Where that fails, the packet is reported after all: spurious, but not lost.
//
// The same is done with every packet if the system's have only what held when they were queued (Snapshots).
//
// # Whether the number still names the socket
//
// Closing a socket ends its registration without a packet, and enabling the number afterwards creates
// one, for whichever socket has it. Disabling creates nothing and fails where there is none. So Set is two
// registrations in one call, disable and enable, and the first one's result tells what the second was. If
// it created a registration, that is removed again, and Set is Absent. No error code is relied upon: where
// an operation fails, the system is asked whether the handle is a socket at all. That disabling fails where
// there is no registration is not documented, so it is tried before the backend is used (see Probe).
//
// The number may change hands between the two. Where the program enables, it has named the socket that has
// the number by then. But the layer looks again by itself, and the backend does, and then the socket is
// pinned, and the number compared with it afterwards.
//
// Where the system has no memory for the first and has some for the second, nothing tells. A program's enable
// then makes a new registration of the socket that it names. What the backend has enabled by itself counts as
// the old socket until the program's next enable.
//
// # Failures
//
// A call that fails as a whole has changed nothing. One socket may be the cause, so each change is made in a
// call of its own then. Codes that say that memory has run out refuse the change, which may be tried again;
// a wait is tried again after a moment.
//
// # Removal
//
// Delete removes natively, so that any other port may register the socket, and does not wait for the
// removal's own packet. That one finds its key unknown, or only confirms what is known: the layer makes
// its own EventRemove. Should the system refuse a registration until that packet was dequeued, Add
// dequeues it, also from another port's queue, and tries again.
//
// # The stash
//
// What is dequeued and not yet reported lies in the stash, from which Poll takes before it asks the
// system: the packet that ended a Park, and what lay in front of a packet that was waited for. Whoever
// leaves something there while a goroutine is parked wakes it.
package psn
