// Package iouring is the room of Linux' io_uring, for who asks for it: an epoll descriptor watches the sockets,
// as in the room of epoll, and the changes of a batch go to it by one io_uring_enter instead of an epoll_ctl
// each. So it keeps what epoll keeps: a closed socket leaves by itself and its peer hears of it, nothing is armed
// that would have to be cancelled, and whatever has happened is there for whoever looks, on any thread.
//
// # Changes
//
// The kernel makes a change (IORING_OP_EPOLL_CTL) as it takes the submission, but for one that meets somebody
// else in the epoll descriptor: that one it leaves to a thread of its own, and it is waited for. A batch of fewer
// than 16 changes goes by epoll_ctl, which is no dearer then.
//
// # What it costs, and why not less
//
// Where 100 of 1,000 sockets are active, a port on it costs 0.98 to 1.02 of the CPU per event that it costs on
// epoll, a send and a receive included, whatever the trigger: nothing that could be told from noise. A change alone costs 0.93 to 1.0 of an
// epoll_ctl. More than half of either is finding the files behind the two numbers, which a ring does not spare,
// and on a processor with cheap system calls little else is left.
//
// Polls in the ring itself (IORING_OP_POLL_ADD, multishot) cost less in a loop that never leaves its thread.
// Goroutines do leave theirs. These are loops in C with 100 of 1,000 Unix sockets active, in a process of two
// threads on Linux 6.18; nanoseconds per event without the event's own send and receive, each ±15:
//
//	                                           only harvested    and looked at again
//	epoll, edges; changed together                  140                 265
//	the same, changed through a ring                140                 260
//	multishot polls of one thread                   110                 140
//	the same, checked by one poll(2) a harvest      145
//	multishot polls of any thread                   215                 240
//	the same, checked by one poll(2) a harvest      265
//	one-shot polls of one thread                                        195
//	one-shot polls of any thread                                        255
//
// Those of one thread are of a ring with DEFER_TASKRUN, which nobody but the thread that made it may enter. In any
// other ring, what a socket's waker leaves to be done is done by the thread that armed the poll, when it comes by
// the kernel the next time; it is woken for it if it sleeps. That is dearer than epoll's ready list. It also comes
// late: somebody else who looks meanwhile finds nothing. A thread just for the ring would have to be switched to
// and back for each harvest, which is several times what a small harvest costs.
//
// And a poll lacks what epoll does on the side. It tells what its waker said, not what holds, hence the poll(2). It
// holds a closed socket open, so that the peer hears nothing. It does not tell whether a number still names its
// socket (G12): that takes another system call for each change, half as dear as epoll_ctl, which tells anyway. A
// room made of such polls, with all that, cost a port twice what epoll costs.
//
// To harvest in the same io_uring_enter (IORING_OP_EPOLL_WAIT, Linux 6.15) costs as much as an epoll_pwait of its
// own: where nothing is ready it arms a poll, which must be cancelled with the same call.
//
// # Receives and sends
//
// The receives and sends of many sockets are made by one io_uring_enter (kernel.Batcher). Each has MSG_DONTWAIT: the
// kernel makes the call as it takes the submission, and one that would block completes with EAGAIN there and then. No
// poll is armed and no buffer is the kernel's after the call, so there is nothing to cancel, and a socket can be
// closed at any time. Beside a system call each, on Unix sockets, a call costs as much where there are two of them, and
// 0.7 of it with 32 or 100 (medians of 31 pairs on a busy machine, with a wide spread below 16). An overlapped echo of
// 100 busy TCP connections costs 0.88 of the CPU that the same program costs on epoll, and 1.04 of a loop that waits
// for edges on epoll and calls Recv and Send itself (medians of nine runs; 0.94 to 1.23).
//
// Goroutines do not wait for each other's ring: each takes one of its own from a list for the time of a call. Rings are
// made when they are needed, up to eight, and closed with the room. Whoever finds none makes its calls one by one.
// That enter goes through Go's scheduler, because a hundred sends take long.
//
// # Files
//
// Files are read by a ring of their own (kernel.Files), and written past the page cache (O_DIRECT). These are CPU times
// per operation as multiples of a goroutine's, the whole way from start to dequeuing, of one run of BenchmarkFile on
// ext4 and Linux 6.18, on two processors that were busy with other things:
//
//	                                              1 in flight     64 in flight
//	4 KiB that the page cache has                    0.39             0.81
//	64 KiB that it has                               0.21 (0.67 in another run)
//	4 KiB that it has not                            0.69             0.52
//	4 KiB past it, read                              0.79             0.46
//	4 KiB past it, written                           1.01             0.58
//
// A written one cost 1.6 and 0.87 with one in flight in other runs. With 64 in flight the ring took longer all the same:
// 1.16 of the goroutines' time for what the page cache has, 1.7 for what it has not or is read past it, 1.35 for what
// is written past it, by the clock.
//
// What the page cache has is not read by the ring, but by preadv2 (RWF_NOWAIT), up to 64 KiB. By the ring it was
// 0.70 with one in flight and 1.6 with 64, in an earlier run: an io_uring_enter that reads costs as much as
// goroutine and pread together. Writes to the page cache, which ext4 never does at once, were 5.3 and 1.3: a thread of
// the kernel makes them. So were reads of 1 MiB, with 1.2 and 1.0. Both are left to the goroutines, and so is a file
// system without RWF_NOWAIT.
package iouring
