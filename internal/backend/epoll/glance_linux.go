package epoll

import (
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backend/unixsock"
)

// glances is how many sockets one poll(2) looks at: as many as the layer above looks at together.
const glances = 32

// glance sees to the looks among changes for whose sockets nothing holds: they have their outcome and stay Same. The
// others are Same no more, and rest is what reaches up to the last of them. By poll(2) a look costs a third of an
// epoll_ctl (BenchmarkLook).
//
// poll(2) knows numbers only, so what it says may be of another socket by now. That nothing holds can be believed
// all the same: what is watched goes on being watched by edges, if it is still there. What holds is for epoll to say.
func glance(changes []backend.Change) (rest []backend.Change) {
	from := 0
	for from < len(changes) && !changes[from].Same {
		from++
	}
	if from == len(changes) {
		return changes
	}
	rest = changes[:from]
	var fds [glances]unix.PollFd
	for ; from < len(changes); from += glances {
		some := changes[from:min(len(changes), from+glances)]
		for i := range some {
			c := &some[i]
			if fd, ok := unixsock.FD(c.Handle); ok && c.Same {
				fds[i] = unixsock.Poll(fd, c.Interest)
				fds[i].Events |= int16(c.Interest & backend.Urgent) // the same bit
			} else {
				fds[i] = unix.PollFd{Fd: -1} // the system passes over it
			}
		}
		sure := unixsock.PollNow(fds[:len(some)]) >= 0
		for i := range some {
			c := &some[i]
			if c.Same = c.Same && sure && fds[i].Revents == 0 && fds[i].Fd >= 0; c.Same {
				c.Status, c.Err = backend.Done, nil
			} else {
				rest = changes[:from+i+1]
			}
		}
	}
	return rest
}
