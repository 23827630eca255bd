package overlapped

import (
	"bytes"
	"io"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	iouring "github.com/socknotify/socknotify/internal/ring"
)

// sameFile writes and reads a file, in one piece, in parts and at its end.
func sameFile(t *testing.T, p *socknotify.Port[string], at filePlace) {
	t.Helper()
	flags := os.O_RDWR
	if at.direct {
		flags |= directFlag
	}
	made, err := os.CreateTemp(at.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	f, err := os.OpenFile(made.Name(), flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var g guardedBuffer
	var o Op[string]
	const size = 1 << 20
	b := g.buffer(size, true)
	contents(b, 0)
	want := slices.Clone(b)
	if err := WriteAt(p, f, "k", b, 0, &o); err != nil {
		t.Fatal(err)
	}
	completes(t, p, &o, size, nil)
	for _, off := range []int64{0, 12 * alignment, size - alignment, size} {
		clear(b)
		if err := ReadAt(p, f, "k", b, off, &o); err != nil {
			t.Fatal(err)
		}
		end := error(nil)
		if off > 0 {
			end = io.EOF
		}
		completes(t, p, &o, int(size-off), end)
		if !bytes.Equal(b[:size-off], want[off:]) {
			t.Fatalf("read something else at %d", off)
		}
	}
}

// A process may be forbidden io_uring when it has ports on it, with and without a ring for files. All goes on by
// other means then, what the kernel has begun is told of when it ends, and only canceling does nothing to that.
func TestForbiddenInMidLife(t *testing.T) {
	if err := iouring.Probe(); err != nil {
		t.Skip(err)
	}
	const role = "SOCKNOTIFY_TEST_FORBIDDEN_LATER"
	if errno, ok := os.LookupEnv(role); ok {
		forbiddenLater(t, refusals[errno])
		return
	}
	for errno := range refusals {
		t.Run(errno, func(t *testing.T) { alone(t, "TestForbiddenInMidLife", role, errno) })
	}
}

func forbiddenLater(t *testing.T, errno unix.Errno) {
	places := filePlaces(t)
	fresh, err := socknotify.New[string](WithRing())
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	used, k := transferringPort[string](t)
	r, w := slow(t)
	var first, second Op[string]
	b := make([]byte, 2)
	readAt(t, used, r, "first", b[:1], &first)
	readAt(t, used, r, "second", b[1:], &second)
	batches, err := socknotify.New[*batchConn](WithRing())
	if err != nil {
		t.Fatal(err)
	}
	defer batches.Close()
	conns := batchConns(t, 40)
	receive(t, batches, conns[:20])

	forbid(t, unix.SYS_IO_URING_ENTER, errno)
	taken := k.taken.Load()
	for _, at := range places {
		sameFile(t, used, at)
	}
	forbid(t, unix.SYS_IO_URING_SETUP, errno)
	for _, at := range places {
		sameFile(t, fresh, at)
		sameFile(t, used, at)
	}
	if n := k.taken.Load() - taken; n != 0 {
		t.Errorf("the kernel was given %d", n)
	}

	if err := Cancel(used, &first); err != nil {
		t.Error(err)
	}
	none(t, used)
	write(t, w, "xy")
	for range 2 {
		nt := next(t, used)
		if n, err := Of(&nt).Result(); n != 1 || err != nil {
			t.Errorf("%s: %d, %v", nt.Key, n, err)
		}
	}
	none(t, used)
	if slices.Sort(b); string(b) != "xy" { // which of them is first is the kernel's to say
		t.Errorf("read %q", b)
	}

	receive(t, batches, conns[20:])
	var sends []Request[*batchConn]
	for _, c := range conns {
		sends = append(sends, SendRequest(c.peer, c, []byte("abcd"), &c.send))
	}
	begun(t, batches, sends)
	each(t, batches, 2*len(conns), func(nt socknotify.Notification[*batchConn]) {
		if n, err := Of(&nt).Result(); n != 4 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
	var regs []socknotify.Registration[*batchConn]
	for _, c := range conns {
		send(t, c.peer)
		regs = append(regs, socknotify.Enable(c.s, c, socknotify.EventIn, oneShot))
	}
	if _, err := batches.Process(regs, nil, 0); err != nil {
		t.Fatal(err)
	}
	must(t, regs)
	each(t, batches, len(conns), func(nt socknotify.Notification[*batchConn]) {
		if nt.Events != socknotify.EventIn {
			t.Errorf("%+v", nt)
		}
	})
}

// must fails on the Result of an entry.
func must[K comparable](tb testing.TB, regs []socknotify.Registration[K]) {
	tb.Helper()
	for i := range regs {
		if regs[i].Result != nil {
			tb.Fatal(regs[i].Result)
		}
	}
}
