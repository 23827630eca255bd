package iouring

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel"
)

// Probe tells why this system has no io_uring that serves, or nil. It tries once per process.
var Probe = sync.OnceValue(func() error {
	if !slices.Contains(architectures, runtime.GOARCH) {
		return refusal("not on "+runtime.GOARCH, nil)
	}
	return try()
})

// architectures are those of 64 bits whose user and kernel sides see shared memory alike, and which have the
// least byte first. (On 32-bit ARM and on ppc64 they do not.)
var architectures = []string{"amd64", "arm64", "loong64", "riscv64"}

func try() error {
	k, err := open(1)
	if err != nil {
		return refusal(reason(err), err)
	}
	defer k.Close()
	if err := k.works(); err != nil {
		return refusal("it does not do what is asked of it", err)
	}
	return nil
}

// reason explains why a ring could not be made.
func reason(err error) string {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return "io_uring is forbidden, by the sysctl kernel.io_uring_disabled or by a seccomp filter"
	case errors.Is(err, unix.ENOSYS):
		return "the kernel has no io_uring, or a seccomp filter hides it, or it is older than 5.18"
	case errors.Is(err, unix.EINVAL):
		return "the kernel is older than 5.18"
	}
	return "no ring could be made"
}

// refused is the error of a system without an io_uring that serves.
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

// works has a ring make one change after the other, and checks that they are made.
func (p *Poller) works() error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if _, err := unix.Write(fds[1], []byte("x")); err != nil {
		return err
	}
	for token, step := range []struct {
		action  kernel.Action
		reports int
	}{{kernel.Add, 1}, {kernel.Set, 1}, {kernel.Mute, 0}, {kernel.Set, 1}, {kernel.Delete, 0}} {
		c := [1]kernel.Change{{Handle: uintptr(fds[0]), Token: uint64(token), Interest: kernel.In, Action: step.action}}
		if p.submit(p.Descriptor(), c[:]) != 1 {
			return fmt.Errorf("change %d: not taken", token)
		}
		if c[0].Status != kernel.Done {
			return fmt.Errorf("change %d: %w", token, c[0].Err)
		}
		var one [1]kernel.Ready
		if n := p.Poll(nil, one[:]); n != step.reports || n == 1 && (one[0].Token != uint64(token) || one[0].Mask&kernel.In == 0) {
			return fmt.Errorf("change %d: %d reports", token, n)
		}
	}
	return nil
}
