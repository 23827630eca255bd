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
// # Memory
//
// The memory of a poll is owned by the kernel until the poll's packet was dequeued, also if the poll was
// cancelled or the socket closed. It is in groups of pinned entries. An entry is used again only after both of
// its packets were dequeued.
package afd
