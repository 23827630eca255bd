// Package kqueue is the backend on kqueue(2) of macOS, FreeBSD, NetBSD, OpenBSD and DragonFly BSD. Every
// socket is watched by edges (EV_CLEAR), through two knotes, one that reads and one that writes.
//
// Add creates both knotes. They stay until Delete, and are disabled while no interest needs them. The
// system removes them when the number is closed. Therefore they identify the socket: an operation that
// cannot create a knote fails on a number that was used again. Only EV_ADD makes every kernel poll again
// and take new parameters, but EV_ADD can create a knote. So each EV_ADD of one knote is followed, in the
// same call, by an operation on the other knote that cannot create one. If that operation fails, the EV_ADD
// applied to another socket, and is undone before any harvest.
//
// The reading knote reports the end of the stream and errors. If the interest is without In, the knote
// waits for more data than any buffer holds (NOTE_LOWAT), because without an enabled filter a socket
// reports nothing.
//
// Tokens are in a table by number, not in the kernel, for three reasons: the table is needed to know which
// parameters Has must leave unchanged, 32-bit systems have no room for a token, and an integer in a field that x/sys
// declares as a pointer can crash the garbage collector. The table is consistent because one mutex covers
// a Poll: an event that is taken belongs to a knote that was last changed by the latest change.
//
// Limits:
//
//   - Urgent data is not watched for (only three of the five systems could). Every report of input has
//     Urgent along with In, so that a short receive is not mistaken for the end of the data.
//   - An error that does not end a stream, such as a datagram's, is found by a receive that peeks, if an
//     event has no other explanation. Unread data hides it until the data is received.
//   - NetBSD decides when it creates a knote whether the socket is a listener, and EV_ADD does not change
//     that. Enable a listener after listen, or remove the registration before listen.
package kqueue
