package contend

import (
	"fmt"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tokens are registered sockets of which some are active, in pairs: one of two partners has a byte, and passes it to
// the other when it is notified.
type tokens struct {
	registered, active int
	out, in            []int // a byte written to in[i] is read from out[i]
}

func newTokens(p Params) (*tokens, error) {
	if p.Active < 2 || p.Active%2 != 0 || p.Active > p.Registered {
		return nil, fmt.Errorf("%d active of %d: must be even, and not more", p.Active, p.Registered)
	}
	if p.Batch < 1 {
		return nil, fmt.Errorf("a batch of %d", p.Batch)
	}
	t := &tokens{registered: p.Registered, active: p.Active}
	for range p.Registered {
		s, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("socketpair: %w", err)
		}
		t.out, t.in = append(t.out, s[0]), append(t.in, s[1])
	}
	return t, nil
}

func (t *tokens) close() {
	for _, fd := range slices.Concat(t.out, t.in) {
		unix.Close(fd)
	}
}

// at returns the index of the k-th active socket.
func (t *tokens) at(k int) int { return k * t.registered / t.active }

// each calls f for every socket, with its number among the active ones, or -1.
func (t *tokens) each(f func(fd, k int) error) error {
	k := 0
	for i, fd := range t.out {
		mine := -1
		if k < t.active && t.at(k) == i {
			mine, k = k, k+1
		}
		if err := f(fd, mine); err != nil {
			return err
		}
	}
	return nil
}

// begin writes a byte to one of each two partners.
func (t *tokens) begin() {
	for k := 0; k < t.active; k += 2 {
		t.give(k)
	}
}

var token = [1]byte{'x'}

func (t *tokens) give(k int) {
	syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(t.in[t.at(k)]), uintptr(unsafe.Pointer(&token)), 1, unix.MSG_NOSIGNAL, 0, 0)
}

// take reads the byte of the k-th and reports whether there was one.
func (t *tokens) take(k int, buf *[8]byte) bool {
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(t.out[t.at(k)]), uintptr(unsafe.Pointer(buf)), 8, 0, 0, 0)
	return errno == 0 && n > 0
}

// pass passes the byte of the k-th to its partner, if it has one.
func (t *tokens) pass(k int, buf *[8]byte) int64 {
	if !t.take(k, buf) {
		return 0
	}
	t.give(k ^ 1)
	return 1
}
