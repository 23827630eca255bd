package epoll

import (
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/unixsock"
)

// skipBatch is the number of sockets of one poll(2). The layer above rechecks as many together.
const skipBatch = 32

// skipIdle polls the sockets of the changes with SkipIdle set. If no condition holds for a socket, its change
// gets the status Done and keeps SkipIdle. skipIdle clears SkipIdle of the others, and returns the changes up to
// the last one that still has to be applied. A poll(2) costs a third of an epoll_ctl (BenchmarkSkipIdle).
//
// poll(2) knows only descriptor numbers, so its result may be about another socket by now. An idle result is
// safe to use nevertheless: a socket that is still watched remains watched, by edges. Any other result is
// verified by epoll_ctl.
func skipIdle(changes []backend.Change) (rest []backend.Change) {
	from := 0
	for from < len(changes) && !changes[from].SkipIdle {
		from++
	}
	if from == len(changes) {
		return changes
	}
	rest = changes[:from]
	var fds [skipBatch]unix.PollFd
	for ; from < len(changes); from += skipBatch {
		some := changes[from:min(len(changes), from+skipBatch)]
		for i := range some {
			c := &some[i]
			if fd, ok := unixsock.FD(c.Handle); ok && c.SkipIdle {
				fds[i] = unixsock.Poll(fd, c.Interest)
				fds[i].Events |= int16(c.Interest & backend.Urgent) // the same bit
			} else {
				fds[i] = unix.PollFd{Fd: -1} // poll(2) ignores the entry
			}
		}
		sure := unixsock.PollNow(fds[:len(some)]) >= 0
		for i := range some {
			c := &some[i]
			if c.SkipIdle = c.SkipIdle && sure && fds[i].Revents == 0 && fds[i].Fd >= 0; c.SkipIdle {
				c.Status, c.Err = backend.Done, nil
			} else {
				rest = changes[:from+i+1]
			}
		}
	}
	return rest
}
