package model

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/sock"
)

// poll asks poll(2), without waiting.
func poll(fd int) (s state) {
	f := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLOUT | unix.POLLRDHUP | unix.POLLPRI}}
	for {
		_, err := unix.Poll(f, 0)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			panic(fmt.Sprint("poll: ", err))
		}
	}
	for _, t := range [...]struct {
		bit int16
		is  state
	}{
		{unix.POLLIN, stateIn}, {unix.POLLOUT, stateOut}, {unix.POLLPRI, stateUrgent},
		{unix.POLLERR, stateErr}, {unix.POLLRDHUP, stateEnded}, {unix.POLLHUP, stateDead},
	} {
		if f[0].Revents&t.bit != 0 {
			s |= t.is
		}
	}
	return s
}

func sendUrgent(fd uintptr) error {
	return unix.Sendto(int(fd), []byte{1}, unix.MSG_OOB|unix.MSG_NOSIGNAL, nil)
}

// spare makes a bound socket use up no port of its own.
func spare(s *sock.Socket) {
	check(unix.SetsockoptInt(int(s.Handle()), unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1))
}

// base is where the sockets' own numbers begin, so that no other descriptor of the process comes to
// lie among them.
const base = 400

const nobody = base + 5000 // no descriptor

// moved makes the lowest free number name a socket, too.
func moved(fd uintptr, _ int) int { return must(unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, base)) }

// duplicate makes another number name a socket.
func duplicate(fd uintptr) uintptr { return uintptr(must(unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0))) }

// replaced makes a number name a socket instead of the one that it names.
func replaced(num int, fd uintptr) int {
	check(unix.Dup3(int(fd), num, unix.O_CLOEXEC))
	return num
}

// occupy has nothing to do: no other descriptor gets so high.
func occupy(int) (letGo func()) { return nil }

// countEach says that descriptors are quick to count.
const countEach = true
