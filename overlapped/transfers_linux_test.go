package overlapped

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/port"
	iouring "github.com/socknotify/socknotify/internal/ring"
)

// A transferring kernel is given every operation on a file, be it on a pipe, so that a test decides when a read
// comes to an end.
type transferring struct {
	backend.Poller
	backend.Files
	taken  atomic.Int32
	refuse atomic.Bool
	closed atomic.Bool
	// ended changes what the kernel has reported.
	ended func(e *backend.Transferred)
}

func (k *transferring) Suits(uintptr) backend.FileUse {
	return backend.FileUse{Read: true, Write: true}
}

func (k *transferring) StartTransfer(file uintptr, token uint32, write bool, b []byte, off int64) bool {
	if k.refuse.Load() || !k.Files.StartTransfer(file, token, write, b, off) {
		return false
	}
	k.taken.Add(1)
	return true
}

func (k *transferring) Close() error {
	defer k.closed.Store(true)
	return k.Poller.Close()
}

func (k *transferring) Transferred(ended []backend.Transferred) int {
	n := k.Files.Transferred(ended)
	for i := range ended[:n] {
		if k.ended != nil {
			k.ended(&ended[i])
		}
	}
	return n
}

func transferringKernel(t testing.TB) *transferring {
	t.Helper()
	k := ringKernel(t)
	return &transferring{Poller: k, Files: k.(backend.Files)}
}

// ringKernel is the epoll backend with io_uring for operations.
func ringKernel(t testing.TB) backend.Poller {
	t.Helper()
	if err := iouring.Probe(); err != nil {
		t.Skip(err)
	}
	k, err := iouring.New()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// transferringPort is a port whose kernel reads and writes files.
func transferringPort[K comparable](t testing.TB) (*socknotify.Port[K], *transferring) {
	t.Helper()
	k := transferringKernel(t)
	p := newPort[K](t, k, "ring")
	t.Cleanup(func() { p.Close() })
	return p, k
}

// slow returns the ends of a pipe, whose reads block.
func slow(t testing.TB) (r, w *os.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w = os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func write(t testing.TB, w *os.File, s string) {
	t.Helper()
	if _, err := w.WriteString(s); err != nil {
		t.Fatal(err)
	}
}

func readAt[K comparable](t testing.TB, p *socknotify.Port[K], f *os.File, key K, b []byte, o *Op[K]) {
	t.Helper()
	if err := ReadAt(p, f, key, b, 0, o); err != nil {
		t.Fatal(err)
	}
}

// The kernel may move a part at a time (O7), and tells a waiter who sleeps of the last one.
func TestTransferOfParts(t *testing.T) {
	p, k := transferringPort[string](t)
	r, w := slow(t)
	var o Op[string]
	b := make([]byte, 6)
	readAt(t, p, r, "k", b, &o)
	none(t, p)
	for i, part := range []string{"ab", "c", "def"} {
		if n := k.taken.Load(); n != int32(i+1) {
			t.Fatalf("the kernel was given %d", n)
		}
		write(t, w, part)
		if i < 2 {
			eventually(t, "the rest is under way", func() bool { none(t, p); return k.taken.Load() == int32(i+2) })
		}
	}
	completes(t, p, &o, 6, nil)
	if string(b) != "abcdef" {
		t.Errorf("read %q", b)
	}
	// Parked: by the time of the second read nothing of the first is left that could wake.
	woken := make(chan socknotify.Notification[string])
	go func() { woken <- next(t, p) }()
	asleep(t, p, 1)
	readAt(t, p, r, "k", b[:2], &o)
	write(t, w, "xy")
	if nt := <-woken; Of(&nt) != &o || nt.Data != 2 || string(b[:2]) != "xy" {
		t.Fatalf("%+v, %q", nt, b)
	}
	readAt(t, p, r, "k", b, &o)
	write(t, w, "xyz")
	w.Close()
	completes(t, p, &o, 3, io.EOF)
	none(t, p)
}

// A polled kernel lets a test act just before it is asked for reports.
type polled struct {
	*transferring
	before func()
}

func (k *polled) Poll(changes []backend.Change, ready []backend.Ready) int {
	if len(ready) > 0 && k.before != nil {
		k.before()
	}
	return k.transferring.Poll(changes, ready)
}

// A read ends while a leader polls for the last time, and that poll takes the report that was to end its sleep.
func TestTransferEndsInLastPoll(t *testing.T) {
	k := &polled{transferring: transferringKernel(t)}
	p := newPort[string](t, k, "ring")
	t.Cleanup(func() { p.Close() })
	r, w := slow(t)
	var o Op[string]
	readAt(t, p, r, "k", make([]byte, 1), &o)
	polls := 0
	k.before = func() {
		if polls++; polls == 2 { // the first is before it goes to sleep
			k.before = nil
			write(t, w, "x")
			eventually(t, "the read has ended", k.Due)
		}
	}
	completes(t, p, &o, 1, nil)
}

// Waiters that blocked on a port without sockets are woken too.
func TestTransferWakesEarlierWaiters(t *testing.T) {
	for _, waiters := range []int{1, 3} {
		p, _ := transferringPort[string](t)
		r, w := slow(t)
		woken := make(chan socknotify.Notification[string])
		for range waiters {
			go func() { woken <- next(t, p) }()
		}
		asleep(t, p, waiters)
		ops, bufs := make([]Op[string], waiters), make([][1]byte, waiters)
		for i := range ops {
			readAt(t, p, r, "k", bufs[i][:], &ops[i])
		}
		for range ops {
			write(t, w, "x")
			if nt := <-woken; Of(&nt) == nil || nt.Data != 1 {
				t.Fatalf("%+v", nt)
			}
		}
	}
}

func TestTransferCanceled(t *testing.T) {
	p, k := transferringPort[string](t)
	r, w := slow(t)
	var o, other Op[string]
	b, c := make([]byte, 4), make([]byte, 1)
	readAt(t, p, r, "k", b, &o)
	write(t, w, "a")
	eventually(t, "the rest is under way", func() bool { none(t, p); return k.taken.Load() == 2 })
	readAt(t, p, r, "other", c, &other)
	if err := Cancel(p, &o); err != nil {
		t.Fatal(err)
	}
	completes(t, p, &o, 1, ErrCanceled)
	none(t, p)
	if err := Cancel(p, &o); err != ErrNotInFlight {
		t.Error(err)
	}
	write(t, w, "b")
	completes(t, p, &other, 1, nil)
	if string(b[:1])+string(c) != "ab" {
		t.Errorf("read %q and %q", b[:1], c)
	}
}

// Closing the file during the operation does the operation no harm here, and its number none to another file.
func TestTransferOutlivesFile(t *testing.T) {
	p, _ := transferringPort[string](t)
	r, w := slow(t)
	var o Op[string]
	b := make([]byte, 1)
	readAt(t, p, r, "k", b, &o)
	r.Close()
	other, _ := slow(t) // has the number now
	write(t, w, "x")
	completes(t, p, &o, 1, nil)
	readAt(t, p, r, "k", b, &o)
	completes(t, p, &o, 0, os.ErrClosed)
	runtime.KeepAlive(other)
}

// What the kernel does not take, or fails at, is done all the same, with the error that package os gives.
func TestTransferFallsBack(t *testing.T) {
	p, k := transferringPort[string](t)
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "file"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var o Op[string]
	b := make([]byte, 10)
	same := func(t *testing.T, f *os.File, taken bool) {
		t.Helper()
		before := k.taken.Load()
		want := make([]byte, len(b))
		n, err := f.ReadAt(want, 3)
		clear(b)
		if err := ReadAt(p, f, "k", b, 3, &o); err != nil {
			t.Fatal(err)
		}
		nt := next(t, p)
		got, cause := Of(&nt).Result()
		if got != n || string(b) != string(want) {
			t.Errorf("read %d, %q; want %d, %q", got, b, n, want)
		}
		var of *Error
		if errors.As(cause, &of) {
			cause = of.Err
		}
		if cause != err && (cause == nil || err == nil || cause.Error() != err.Error()) {
			t.Errorf("error %v; want %v", cause, err)
		}
		if k.taken.Load() > before != taken {
			t.Errorf("the kernel was given %d", k.taken.Load()-before)
		}
	}
	if err := WriteAt(p, f, "k", []byte("0123456789abcdef"), 0, &o); err != nil {
		t.Fatal(err)
	}
	completes(t, p, &o, 16, nil)
	same(t, f, true)

	k.refuse.Store(true)
	same(t, f, false)
	k.refuse.Store(false)

	fail := func(e *backend.Transferred) { e.Status, e.N = backend.Failed, 0 }
	part := func(e *backend.Transferred) { e.N, k.ended = min(e.N, 4), fail }
	k.ended = fail
	same(t, f, true)
	k.ended = part
	same(t, f, true)
	k.ended = func(e *backend.Transferred) {
		*e, k.ended = backend.Transferred{Token: e.Token, Status: backend.Abandoned}, nil
	}
	same(t, f, true)
	same(t, f, true)

	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	same(t, dir, true)
	writeOnly, err := os.OpenFile(f.Name(), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writeOnly.Close()
	same(t, writeOnly, true)
	writeOnly.Close()
	same(t, writeOnly, false)
}

// What would end behind the last offset that there is, is no read at the end of the file (O7), whatever part of it
// is asked for first.
func TestReadPastOffsets(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 3*port.MaxNow)
	off := int64(math.MaxInt64 - 2*port.MaxNow)
	_, want := f.ReadAt(b, off)
	if want == nil || want == io.EOF {
		t.Fatalf("package os says %v", want)
	}
	onFileKernels(t, func(t *testing.T, open func() (backend.Poller, error)) {
		k, err := open()
		if err != nil {
			t.Fatal(err)
		}
		p := newPort[int](t, k, "")
		defer p.Close()
		for range 20 {
			var o Op[int]
			if err := ReadAt(p, f, 1, b, off, &o); err != nil {
				t.Fatal(err)
			}
			var cause *os.PathError
			n, err := result(t, p)
			if n != 0 || !errors.As(err, &cause) || cause.Error() != want.Error() {
				t.Fatalf("read %d, %v; want %v", n, err, want)
			}
		}
	})
}

// More than the kernel can be given: nothing is lost.
func TestTransfersBeyondMax(t *testing.T) {
	p, k := transferringPort[int](t)
	r, w := slow(t)
	const more = 20
	ops, bufs := make([]Op[int], backend.MaxTransfers), make([][1]byte, backend.MaxTransfers)
	for i := range ops {
		readAt(t, p, r, i, bufs[i][:], &ops[i])
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var others [more]Op[int]
	for i := range others {
		readAt(t, p, f, -i-1, make([]byte, 1), &others[i])
	}
	for range others {
		if nt := next(t, p); nt.Key >= 0 {
			t.Fatalf("%+v", nt)
		}
	}
	if n := k.taken.Load(); n != backend.MaxTransfers {
		t.Errorf("the kernel was given %d", n)
	}
	write(t, w, string(make([]byte, backend.MaxTransfers)))
	for range ops {
		if nt := next(t, p); nt.Key < 0 || nt.Data != 1 {
			t.Fatalf("%+v", nt)
		}
	}
	none(t, p)
}

// Close has the buffers back from the kernel (O10).
func TestCloseWithTransfers(t *testing.T) {
	p, _ := transferringPort[int](t)
	q, _ := transferringPort[int](t)
	r, w := slow(t)
	var ops [30]Op[int]
	var bufs [30][2]byte
	for i := range ops {
		readAt(t, p, r, i, bufs[i][:], &ops[i])
	}
	Cancel(p, &ops[3])
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range ops {
		if ops[i].keyed.Key != 0 || ops[i].op.Buf != nil || ops[i].op.File != nil {
			t.Fatal("the port has kept what was its")
		}
		readAt(t, q, r, i, bufs[i][:], &ops[i])
	}
	write(t, w, string(make([]byte, 2*len(ops))))
	for range ops {
		if nt := next(t, q); nt.Data != 2 {
			t.Fatalf("%+v", nt)
		}
	}
}

// As long as Close has not given an operation back, no other port takes it (O2).
func TestStartMeetsClose(t *testing.T) {
	p, k := transferringPort[int](t)
	q, _ := transferringPort[int](t)
	r, w := slow(t)
	var o Op[int]
	b := make([]byte, 1)
	readAt(t, p, r, 1, b, &o)
	port.Of(p).Transfers.Mu.Lock() // so that it has been closed in the kernel, and nothing was given back
	closed := make(chan error)
	go func() { closed <- p.Close() }()
	eventually(t, "the kernel is closed", k.closed.Load)
	for range 1000 {
		runtime.Gosched()
		if err := ReadAt(q, r, 2, b, 0, &o); !errors.Is(err, socknotify.ErrInvalid) {
			t.Errorf("started on another port: %v", err)
			break
		}
	}
	port.Of(p).Transfers.Mu.Unlock()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if t.Failed() {
		return
	}
	readAt(t, q, r, 2, b, &o)
	write(t, w, "x")
	completes(t, q, &o, 1, nil)
}

// A port that is dropped goes when the kernel is done, although the buffer is in one object with a pointer to the
// port, and until then the kernel has it.
func TestDroppedWithTransfers(t *testing.T) {
	type user struct {
		p   *socknotify.Port[*user]
		o   Op[*user]
		buf [8]byte
	}
	r, w := slow(t)
	var dropped weak.Pointer[socknotify.Port[*user]]
	var object weak.Pointer[user]
	func() {
		u := &user{p: newPort[*user](t, transferringKernel(t), "ring")}
		dropped, object = weak.Make(u.p), weak.Make(u)
		readAt(t, u.p, r, u, u.buf[:], &u.o)
	}()
	for range 5 {
		runtime.GC()
		if object.Value() == nil {
			t.Fatal("the buffer was collected while the kernel has it")
		}
	}
	write(t, w, "x")
	eventually(t, "the port is collected", func() bool {
		runtime.GC()
		return dropped.Value() == nil && object.Value() == nil
	})
}

// An operation does not end with the thread that started it.
func TestTransferOutlivesThread(t *testing.T) {
	p, k := transferringPort[string](t)
	r, w := slow(t)
	var o Op[string]
	b := make([]byte, 1)
	var started sync.WaitGroup
	started.Go(func() {
		runtime.LockOSThread() // and never unlocks: the thread ends with the goroutine
		readAt(t, p, r, "k", b, &o)
	})
	started.Wait()
	none(t, p)
	write(t, w, "x")
	completes(t, p, &o, 1, nil)
	t.Logf("the kernel was given it %d times", k.taken.Load())
}

// The port owns the buffers that the kernel had until it is closed (O2).
func TestCloseDropsTransfersFirst(t *testing.T) {
	p, _ := transferringPort[string](t)
	q, _ := transferringPort[string](t)
	r, w := slow(t)
	var o Op[string]
	b := make([]byte, 1)
	readAt(t, p, r, "p", b, &o)
	port.Of(p).Transfers.Mu.Lock()
	closed := make(chan error, 1)
	go func() { closed <- p.Close() }()
	eventually(t, "the kernel is closed", func() bool { return !port.Of(p).Transfers.Room.Transferring() })
	err := error(socknotify.ErrInvalid)
	for end := time.Now().Add(50 * time.Millisecond); errors.Is(err, socknotify.ErrInvalid) && time.Now().Before(end); {
		err = ReadAt(q, r, "q", b, 0, &o)
	}
	port.Of(p).Transfers.Mu.Unlock()
	if e := <-closed; e != nil {
		t.Fatal(e)
	}
	if err == nil {
		t.Error("started while its port was being closed")
	} else if err = ReadAt(q, r, "q", b, 0, &o); err != nil {
		t.Fatal(err)
	}
	write(t, w, "x")
	if nt := next(t, q); nt.Key != "q" || Of(&nt) != &o || nt.Data != 1 {
		t.Errorf("%+v", nt)
	}
}
