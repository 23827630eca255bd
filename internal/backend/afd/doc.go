// Package afd is the backend for every version of Windows. It uses polls of the socket driver
// (IOCTL_AFD_POLL, on which select and WSAPoll are built) that complete on an I/O completion port of its own.
//
// A poll is one-shot and tests the conditions when it is started. So a report suppresses its handle until the
// next Set (Edges is false). A poll is started on a helper handle of the driver, and names the socket only in
// its argument. The socket itself may belong to another completion port, such as that of Go's runtime.
//
// # Which socket a handle names
//
// A second poll, the witness, is outstanding from Add to Delete and asks for LOCAL_CLOSE alone. While it is
// outstanding, the socket has not been closed. The poll for readiness does not show that: between its
// completion and the next poll, a socket can be closed and its number used again.
//
// Windows confuses two polls of one socket that complete on one port: the second may never complete, or the
// first may complete with events that the second asked for (trio#52, wepoll#35). It does not confuse polls
// that complete on two ports: several wepoll sets may watch one socket, and wepoll's tests require it. So
// witnesses have a port of their own, and on each port a socket has one poll at a time. A poll is started only
// after the packet of the one before was dequeued. That also holds if the earlier poll was cancelled, because
// the socket was removed or a Set asks for other events.
//
// The witness remains outstanding while any duplicate of the socket is open. If a handle is closed while a
// duplicate is open, and used again, the sockets are distinguished by their addresses (winsock.Name), if they
// have any.
//
// # Receives
//
// A receive from a stream that has to wait is a WSARecv with the caller's buffer, which completes on the port of the polls
// (backend.Receiver). For that the socket is associated with the port at its first such receive. A socket belongs to one
// completion port, so this is done only where a socket can be taken off a port again, which a probe finds out. A socket that
// belongs to another port already is received from by polls. Windows has not run this; Wine has, where tests force it with
// SOCKNOTIFY_RECEIVING=1. The packets of overlapped calls that a program makes by itself on such a socket come to this port
// too, and are dropped.
//
// If a handle is closed without its owner's knowledge while a duplicate is open, its receive cannot be cancelled any more,
// and the kernel keeps the buffer until data arrives. Under Wine it keeps it for the life of the process.
//
// # Memory
//
// The memory of a poll is owned by the kernel until the poll's packet was dequeued, also if the poll was
// cancelled or the socket closed. It is in groups of pinned entries. An entry is used again only after both of
// its packets, and that of its receive, were dequeued.
package afd
