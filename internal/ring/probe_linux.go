package ring

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
)

// Probe returns nil if this system has an io_uring that package ring can use, and otherwise the reason why not. It
// tries once per process.
var Probe = sync.OnceValue(func() error {
	if !slices.Contains(architectures, runtime.GOARCH) {
		return refusal("not on "+runtime.GOARCH, nil)
	}
	return try()
})

// architectures are the 64-bit, little-endian architectures on which user and kernel addresses of shared memory
// are coherent. (On 32-bit ARM and on ppc64 they are not.)
var architectures = []string{"amd64", "arm64", "loong64", "riscv64"}

func try() error {
	var r ring
	if err := r.open(1); err != nil {
		return refusal(reason(err), err)
	}
	r.close()
	if err := works(); err != nil {
		return refusal("io_uring did not make a send and a receive", err)
	}
	return nil
}

// reason explains why a ring could not be opened.
func reason(err error) string {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return "io_uring is forbidden, by the sysctl kernel.io_uring_disabled or by a seccomp filter"
	case errors.Is(err, unix.ENOSYS):
		return "the kernel has no io_uring, or a seccomp filter hides it, or it is older than 5.18"
	case errors.Is(err, unix.EINVAL):
		return "the kernel is older than 5.18"
	}
	return "no ring could be opened"
}

// refused is the error of a system without a usable io_uring.
type refused struct {
	why string
	err error
}

func refusal(why string, err error) error { return &refused{why, err} }

func (r *refused) Error() string {
	if r.err == nil {
		return r.why
	}
	return fmt.Sprintf("%s (%v)", r.why, r.err)
}

func (r *refused) Unwrap() []error {
	if r.err == nil {
		return []error{errors.ErrUnsupported}
	}
	return []error{errors.ErrUnsupported, r.err}
}

// works reports an error unless a ring makes a send and a receive.
func works() error {
	var r ring
	if err := r.open(2); err != nil {
		return err
	}
	defer r.close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	buf := make([]byte, 2)
	for i, step := range []struct {
		call backend.Exchange
		n    int
		err  error
	}{
		{backend.Exchange{Handle: uintptr(fds[0]), Buf: buf}, 0, unix.EAGAIN},
		{backend.Exchange{Handle: uintptr(fds[1]), Buf: []byte("x"), Send: true}, 1, nil},
		{backend.Exchange{Handle: uintptr(fds[0]), Buf: buf}, 1, nil},
	} {
		call := []backend.Exchange{step.call}
		if !r.exchange(call) || !call[0].Made {
			return fmt.Errorf("call %d: not taken", i)
		}
		if call[0].N != step.n || call[0].Err != step.err {
			return fmt.Errorf("call %d: %d bytes, error %v", i, call[0].N, call[0].Err)
		}
	}
	return nil
}
