// Package iouring is the room of Linux' io_uring: each socket has a multishot poll in a ring, and what
// completes is taken from shared memory. It is for who asks for it. For readiness alone epoll is cheaper (see
// below); what a ring does better, receives and sends that complete by themselves, is yet to come.
//
// # Changes
//
// A batch of changes is one io_uring_enter. A Set is an update of the poll, which makes the kernel look
// again; Mute and Delete cancel it at once. Polls bear a generation, which each change counts up: what an
// earlier one completes with is dropped, because the change made the kernel look.
//
// # Which socket a number names
//
// A poll holds the file that it was made for, and a change of it needs no number. So closing a descriptor
// neither ends the poll nor closes the socket, and nothing of a later socket with the number can be reported
// by it. What the number names now is known by the socket's cookie (SO_COOKIE), which no two sockets share
// and duplicates do. It is asked for at each change and before each report, so a closed socket reports
// nothing. A socket of package sock is let go of by its Close. For others there are rounds: a few numbers
// every so many harvests, up to 1024 each 250 ms while somebody is parked. Until then the peer of a socket
// that was closed without OpRemove does not hear of it.
//
// # What is reported
//
// A completion has what the waker said, when it did: data that was received since, input without the end
// that came with it, urgent data always. Therefore it only says where to look. The sockets in question are
// looked at by one poll(2) per harvest, and reports are as exact as epoll's.
//
// # Threads
//
// A poll belongs to the thread that made it, which has to put the completion into the queue when the socket
// becomes ready. The kernel wakes the thread if it sleeps, in whatever system call, for which it must not be
// in an uninterruptible wait; a running one comes by with its next system call or clock tick. (Rings whose
// work is done only by the thread that asks, DEFER_TASKRUN, are cheaper, but allow one thread for good, which
// no goroutine is on.) Two things follow. A report that is due may be in another thread's hands for a moment:
// Settle waits for that, before a call says that there was nothing. And another thread's polls cost a wake-up
// each time: a poll moves to the thread that takes its reports. A thread that ends takes its polls with it;
// they are made anew.
//
// # Parking
//
// The leader waits in Go's poller, for an eventfd that the kernel signals for each completion. A word in
// shared memory tells it when to, so while nobody is parked nothing is signalled, and opening and shutting
// this gate costs no epoll_ctl.
//
// # What it costs
//
// Where 100 of 1,000 sockets are active it needs 1.25 to 1.4 times epoll's CPU per event (Linux 6.18): the
// work that the kernel hands to the thread (task work) costs about what epoll's ready list and its gate do,
// and poll(2) and the cookie come on top. Nor does one io_uring_enter for many changes save anything: an entry
// costs the kernel more than an epoll_ctl with its system call.
package iouring
