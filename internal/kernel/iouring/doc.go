// Package iouring is the room of Linux' io_uring, for who asks for it: an epoll descriptor watches the sockets,
// as in the room of epoll, and the changes of a batch go to it by one io_uring_enter instead of an epoll_ctl
// each. So it keeps what epoll keeps: a closed socket leaves by itself and its peer hears of it, nothing is armed
// that would have to be cancelled, and whatever has happened is there for whoever looks, on any thread.
//
// # Changes
//
// The kernel makes a change (IORING_OP_EPOLL_CTL) as it takes the submission, but for one that meets somebody
// else in the epoll descriptor: that one it leaves to a thread of its own, and it is waited for. A batch of fewer
// than 16 changes costs less by epoll_ctl, and goes that way.
//
// # What it saves, and why not more
//
// Where 100 of 1,000 sockets are active, one-shot registrations that are enabled without Drained cost 0.95 to 0.99
// of the CPU that they cost on epoll, persistent levels 0.97 to 1.0, and what needs no changes is the same. Half
// of a change is finding the file behind each of the two numbers, which a ring does not save.
//
// Polls in the ring itself (IORING_OP_POLL_ADD, multishot) could save more, and do in a loop that never leaves
// its thread. Goroutines do leave theirs. These are C loops with 100 of 1,000 Unix sockets active, on Linux 6.18;
// nanoseconds per event without the event's own send and receive, each ±15:
//
//	                                        only harvested    and looked at again
//	epoll, edges                                 125                 270
//	epoll, changed through a ring                125                 245
//	multishot polls of one thread                 95                 120
//	multishot polls of any thread                200                 275
//	one-shot polls of one thread                                     185
//	one-shot polls of any thread                                     350
//
// The cheap ones are of rings with DEFER_TASKRUN, which only the thread that made the ring may enter. In any other
// ring, what a socket's waker leaves to be done is done by the thread that armed the poll, when it comes by the
// kernel the next time; it is woken for it if it sleeps. That is dearer than epoll's ready list. It also comes
// late: somebody else who looks meanwhile finds nothing. A thread just for the ring would have to be switched to
// and back for each harvest, which is more than a harvest costs, and some 30 µs where it is on another processor.
//
// A poll also costs what epoll does on the side. It tells what its waker said, not what holds. It holds the
// socket open after a close, so that the peer hears nothing. And it does not tell whether a number still names
// its socket (G12), for which a system call is needed that costs half of an epoll_ctl.
//
// To harvest in the same io_uring_enter (IORING_OP_EPOLL_WAIT, Linux 6.15) costs as much as an epoll_pwait of its
// own: where nothing is ready it arms a poll, which must be cancelled with the same call.
//
// # What else a ring is for
//
// Receives and sends that complete by themselves can share this ring. Its descriptor can be watched by the epoll
// descriptor, so that completions end a Park as readiness does.
package iouring
