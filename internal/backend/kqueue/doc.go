// Package kqueue is the backend of kqueue(2), of macOS, FreeBSD, NetBSD, OpenBSD and DragonFly BSD: every
// socket is watched by edges (EV_CLEAR), through two knotes, one that reads and one that writes.
//
// Both are made with Add and stay until Delete, disabled while nobody wants them. The system drops them
// when the number is closed, so that they are the witnesses of which socket it names: an operation that
// may not create a knote fails on a number that was used again. Only EV_ADD makes every kernel look again
// and take new parameters, and EV_ADD may create. So each EV_ADD of one knote is followed, in the same
// call, by an operation on the other that may not; if that fails the first hit a stranger, and is undone
// before anybody can harvest.
//
// The reading knote hears of the end of the stream and of errors. Where input is not asked for, it waits
// for more than any buffer holds (NOTE_LOWAT): a socket with no armed filter hears nothing.
//
// Tokens are in a table by number, and not in the kernel: the table is needed to know what Has must leave
// as it was, 32-bit systems have no room for a token, and an integer in what x/sys declares a pointer can
// stop the garbage collector. It is right because one mutex covers a Poll: an event that is taken belongs
// to a knote that was last touched by the latest change.
//
// What is not known or not told:
//
//   - Urgent data is not watched for (only three of the five systems could). Every report of input says
//     Urgent along with In, so nobody takes a receive that was short for the end of what there is.
//   - An error that is not the end of a stream, such as a datagram's, is looked for when an event does not
//     explain itself, by a receive that peeks; unread data hides it until it was received.
//   - On NetBSD the system decides when a knote is made whether it is a listener's, and EV_ADD keeps it. Enable after
//     listen, or remove before.
package kqueue
