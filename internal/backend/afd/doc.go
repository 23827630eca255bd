// Package afd is the backend of every Windows: polls of the socket driver (IOCTL_AFD_POLL, which select and
// WSAPoll are made of) that complete on an I/O completion port of our own.
//
// A poll is one-shot and looks when it is made, so a report silences its handle until the next Set (Edges
// is false). It is made on a helper handle of the driver, and names the socket only in its argument: the
// socket itself may belong to another completion port, such as that of Go's runtime.
//
// # Which socket a handle names
//
// A second poll, the witness, stands beside it from Add to Delete and asks for nothing but LOCAL_CLOSE: as
// long as it stands, the socket has not been closed. The poll for readiness cannot tell. Between its
// completion and the next one a socket can be closed and its number used again, and nothing would show.
//
// Windows confuses two polls of one socket that complete on one port (the second may never complete, or the
// first with what the second asked for; trio#52, wepoll#35), but not such that complete on two: several
// wepoll sets may watch one socket, and their tests insist on it. So witnesses have a port to themselves,
// and on either port a socket has one poll at a time: a poll is made only when the packet of the one before
// has been dequeued, be it cancelled because the socket was removed, or because a Set asks for something else.
//
// The witness stands while any duplicate of the socket is open. Where a handle is closed under a duplicate,
// and used again, the sockets are told apart by their addresses (winsock.Name), if they have any.
//
// # Memory
//
// What a poll is made of is the kernel's until its packet has been dequeued, also when it was cancelled or
// its socket closed. It lies in groups of pinned entries; an entry is used again only when both of its
// packets have been dequeued.
package afd
