package overlapped

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/qemu"
	iouring "github.com/socknotify/socknotify/internal/ring"
)

// Where io_uring is forbidden, its probe says why, and a port made with WithRing uses ordinary system calls. The test
// runs in a process of its own, which forbids io_uring to itself.
func TestForbiddenRing(t *testing.T) {
	const role = "SOCKNOTIFY_TEST_FORBIDDEN"
	if errno, ok := os.LookupEnv(role); ok {
		forbidden(t, refusals[errno])
		return
	}
	for errno := range refusals {
		t.Run(errno, func(t *testing.T) { alone(t, "TestForbiddenRing", role, errno) })
	}
}

// refusals are the answers of those who forbid io_uring: the sysctl and filters, and filters that hide it.
var refusals = map[string]unix.Errno{"EPERM": unix.EPERM, "ENOSYS": unix.ENOSYS}

// alone runs one test again, in a process of its own with a value in its environment.
func alone(t *testing.T, test, name, value string) {
	t.Helper()
	if qemu.StartsNoProgram.Here() {
		t.Skip(qemu.StartsNoProgram)
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.count=1")
	child.Env = append(os.Environ(), name+"="+value, socknotify.BackendEnv+"=")
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func forbidden(t *testing.T, errno unix.Errno) {
	forbid(t, unix.SYS_IO_URING_SETUP, errno)
	err := iouring.Probe()
	why, reason := error(errno), "seccomp"
	if strconv.IntSize == 32 { // where it is not tried
		why, reason = errors.ErrUnsupported, runtime.GOARCH
	}
	if !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, why) || !strings.Contains(err.Error(), reason) {
		t.Errorf("Probe: %v", err)
	}
	p, err := socknotify.New[string](WithRing())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, at := range filePlaces(t) {
		sameFile(t, p, at)
	}
}

// forbid makes a system call fail, for the whole process and for good.
func forbid(t *testing.T, number uint32, errno unix.Errno) {
	const (
		setModeFilter = 1
		allThreads    = 1
		retErrno      = 0x00050000
		retAllow      = 0x7fff0000
	)
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: number},
		{Code: unix.BPF_RET | unix.BPF_K, K: retErrno | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: retAllow},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, allThreads, uintptr(unsafe.Pointer(&program))); e != 0 {
		t.Fatal(e)
	}
	runtime.KeepAlive(filter)
}
