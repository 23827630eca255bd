package ring

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
)

// pipe stands for a slow file: a read of it is in progress until something is written.
func pipe(t *testing.T) (r, w int) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}

func begin(t *testing.T, p *Poller, fd int, token uint32, b []byte) {
	t.Helper()
	if !p.StartTransfer(uintptr(fd), token, false, b, 0) {
		t.Fatal("not taken")
	}
}

// transferred parks until n transfers have ended.
func transferred(t *testing.T, p *Poller, n int) map[uint32]backend.Transferred {
	t.Helper()
	seen := map[uint32]backend.Transferred{}
	var some [8]backend.Transferred
	for end := time.Now().Add(time.Minute); len(seen) < n; {
		if time.Now().After(end) {
			t.Fatalf("%d of %d transfers have ended", len(seen), n)
		}
		if err := p.Park(end, func() bool { reports(p); return p.Due() }); err != nil {
			t.Fatal(err)
		}
		for p.Due() {
			for _, e := range some[:p.Transferred(some[:])] {
				if _, twice := seen[e.Token]; twice {
					t.Fatalf("transfer %d has ended twice", e.Token)
				}
				seen[e.Token] = e
			}
		}
	}
	return seen
}

func TestTransferEndsPark(t *testing.T) {
	p := newPoller(t, false)
	r, w := pipe(t)
	b := make([]byte, 4)
	for range 100 {
		begin(t, p, r, 7, b)
		if p.Due() {
			t.Fatal("Due before a transfer ended")
		}
		done := make(chan struct{})
		go func() { unix.Write(w, []byte("abc")); close(done) }()
		e := transferred(t, p, 1)[7]
		if <-done; e.Status != backend.Moved || e.N != 3 || string(b[:3]) != "abc" {
			t.Fatalf("%+v, %q", e, b)
		}
		if p.Transferring() {
			t.Fatal("there is another one")
		}
	}
}

// As many transfers as possible run at once. Each ends exactly once, as moved or cancelled, and none of them blocks
// a thread in the kernel.
func TestTransfersAndCancels(t *testing.T) {
	p := newPoller(t, false)
	threads := func() int {
		list, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := threads()
	var bufs [backend.MaxTransfers][2]byte
	var writers [backend.MaxTransfers]int
	for i := range bufs {
		var r int
		r, writers[i] = pipe(t)
		begin(t, p, r, uint32(i), bufs[i][:])
	}
	if n := threads(); n > before+backend.MaxTransfers/8 {
		t.Errorf("%d threads more", n-before)
	}
	for i := 1; i < backend.MaxTransfers; i += 2 {
		p.CancelTransfer(uint32(i))
		p.CancelTransfer(uint32(i))
	}
	for i := 0; i < backend.MaxTransfers; i += 2 {
		unix.Write(writers[i], []byte{'x', byte(i)})
	}
	for token, e := range transferred(t, p, backend.MaxTransfers) {
		switch {
		case token%2 == 1 && e.Status == backend.Abandoned && e.N == 0:
		case token%2 == 0 && e.Status == backend.Moved && e.N == 2 && bufs[token] == [2]byte{'x', byte(token)}:
		default:
			t.Errorf("transfer %d: %+v", token, e)
		}
	}
	p.CancelTransfer(1) // has no transfer
	if p.Due() || p.Transferring() {
		t.Error("there is another one")
	}
}

// After Close the kernel does not write into the buffers.
func TestCloseEndsTransfers(t *testing.T) {
	if err := Probe(); err != nil {
		t.Skip(err)
	}
	p, err := open(false)
	if err != nil {
		t.Fatal(err)
	}
	r, w := pipe(t)
	var bufs [20][1]byte
	for i := range bufs {
		begin(t, p, r, uint32(i), bufs[i][:])
	}
	p.CancelTransfer(3)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	unix.Write(w, []byte("x"))
	if n, err := unix.Read(r, bufs[0][:]); n != 1 || err != nil {
		t.Errorf("read %d, %v; want what was written after Close", n, err)
	}
}

// The report of the ring itself takes no report's place.
func TestReportsBesideTransfers(t *testing.T) {
	p := newPoller(t, false)
	fds, peers := watched(t, p, 4)
	r, w := pipe(t)
	var b [1]byte
	for range 50 {
		begin(t, p, r, 0, b[:])
		unix.Write(w, []byte("x"))
		for _, peer := range peers {
			send(t, peer)
		}
		seen := map[uint64]bool{}
		for range fds {
			var one [1]backend.Ready
			if p.Poll(nil, one[:]) != 1 {
				t.Fatal("a report is missing")
			}
			seen[one[0].Token] = true
		}
		if len(seen) != len(fds) || seen[fileToken] {
			t.Fatalf("reports of %v", seen)
		}
		transferred(t, p, 1)
		for _, fd := range fds {
			unix.Read(fd, b[:])
		}
		allDone(t, p, changes(backend.Set, fds))
	}
}

// Another report may take the place of the ring's own report, but not a second one of the same handle.
func TestReportsInPlaceOfTransfers(t *testing.T) {
	p := newPoller(t, false)
	_, peers := watched(t, p, 2)
	r, w := pipe(t)
	begin(t, p, r, 0, make([]byte, 1))
	reports(p)
	send(t, peers[0])
	send(t, w)
	var ready [2]backend.Ready
	var n int
	for end := time.Now().Add(time.Minute); n < 2; n = p.Poller.Poll(nil, ready[:]) {
		if time.Now().After(end) {
			t.Fatal("timed out waiting for the transfer")
		}
		if n == 1 { // only the socket's report
			send(t, peers[0])
		}
	}
	send(t, peers[0])
	send(t, peers[1])
	n = p.withoutFiles(p.files.ring.Load(), ready[:], n)
	if n != 2 || ready[0].Token == ready[1].Token {
		t.Errorf("%d: %v", n, ready)
	}
	if left := reports(p); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	transferred(t, p, 1)
}

// A transfer is not started if the kernel does not take its submission.
func TestTransferNotTaken(t *testing.T) {
	p := newPoller(t, false)
	r, w := pipe(t)
	var b [1]byte
	begin(t, p, r, 0, b[:])
	f := p.files.ring.Load()
	own := f.ring.sqTail
	f.ring.sqTail = new(atomic.Uint32)
	if p.StartTransfer(uintptr(r), 1, false, b[:], 0) {
		t.Error("started")
	}
	f.ring.sqTail = own
	f.sq.Lock()
	if p.StartTransfer(uintptr(r), 1, false, b[:], 0) {
		t.Error("started while another goroutine submits")
	}
	f.sq.Unlock()
	unix.Write(w, []byte("x"))
	if e := transferred(t, p, 1)[0]; e.N != 1 || p.Transferring() {
		t.Errorf("%+v", e)
	}
}

func TestTransferFails(t *testing.T) {
	p := newPoller(t, false)
	var b [1]byte
	for _, fd := range []int{-1, 1 << 20} {
		begin(t, p, fd, 0, b[:])
		if e := transferred(t, p, 1)[0]; e.Status != backend.Failed || e.N != 0 {
			t.Errorf("%+v", e)
		}
	}
}

// The ring keeps a buffer reachable while the kernel uses it, but not until its completion is taken.
func TestBufferIsKeptAndReleased(t *testing.T) {
	p := newPoller(t, false)
	r, w := pipe(t)
	type object struct {
		buf  [4]byte
		self *object
	}
	var gone atomic.Bool
	func() {
		o := &object{}
		o.self = o
		runtime.AddCleanup(o, func(b *atomic.Bool) { b.Store(true) }, &gone)
		begin(t, p, r, 0, o.buf[:])
	}()
	for range 5 {
		runtime.GC()
		if gone.Load() {
			t.Fatal("collected while the kernel uses it")
		}
	}
	unix.Write(w, []byte("x"))
	for end := time.Now().Add(time.Minute); !gone.Load(); runtime.GC() {
		if time.Now().After(end) {
			t.Fatal("timed out waiting for the buffer to be collected")
		}
	}
	if e := transferred(t, p, 1)[0]; e.N != 1 {
		t.Errorf("%+v", e)
	}
}

func TestSuits(t *testing.T) {
	p := newPoller(t, false)
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	fd := openFile(t, name, unix.O_RDWR)
	var some [5]byte
	_, err := unix.Preadv2(fd, [][]byte{some[:]}, 0, unix.RWF_NOWAIT)
	cached := err != unix.EOPNOTSUPP // this file system has RWF_NOWAIT
	reads := backend.FileUse{ReadNow: cached, Read: cached}
	for name, c := range map[string]struct {
		fd   int
		want backend.FileUse
	}{
		"regular":   {fd, reads},
		"append":    {openFile(t, name, unix.O_RDWR|unix.O_APPEND), reads},
		"directory": {openFile(t, filepath.Dir(name), unix.O_RDONLY), backend.FileUse{}},
		"device":    {openFile(t, "/dev/zero", unix.O_RDWR), backend.FileUse{}},
		"closed":    {1 << 20, backend.FileUse{}},
	} {
		if got := p.Suits(uintptr(c.fd)); got != c.want {
			t.Errorf("%s: %+v; want %+v", name, got, c.want)
		}
	}
	r, _ := pipe(t)
	if got := p.Suits(uintptr(r)); got != (backend.FileUse{}) {
		t.Errorf("pipe: %+v", got)
	}
	if fd, err := unix.Open(name, unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0); err == nil {
		defer unix.Close(fd)
		if got := p.Suits(uintptr(fd)); got != (backend.FileUse{Read: true, Write: true}) {
			t.Errorf("direct: %+v", got)
		}
	}
	if cached {
		n, ok := p.ReadNow(uintptr(fd), some[:], 0)
		if !ok || n != 5 || !bytes.Equal(some[:], []byte("hello")) {
			t.Errorf("read %d, %t, %q", n, ok, some)
		}
		if n, ok = p.ReadNow(uintptr(fd), some[:], 5); n != 0 || !ok {
			t.Errorf("at the end: %d, %t", n, ok)
		}
	}
	if n, ok := p.ReadNow(1<<20, some[:], 0); n != 0 || ok {
		t.Errorf("closed: %d, %t", n, ok)
	}
}

func openFile(t *testing.T, name string, flags int) int {
	t.Helper()
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// Reads and writes of a file use their offsets.
func TestTransferOffsets(t *testing.T) {
	p := newPoller(t, false)
	fd := openFile(t, filepath.Join(t.TempDir(), "file"), unix.O_RDWR|unix.O_CREAT)
	at := int64(5) << 30 // after a hole
	data := []byte("hello")
	if !p.StartTransfer(uintptr(fd), 0, true, data, at) {
		t.Fatal("not taken")
	}
	if e := transferred(t, p, 1)[0]; e.Status != backend.Moved || e.N != 5 {
		t.Fatalf("written: %+v", e)
	}
	b := make([]byte, 10)
	begin := func(off int64) backend.Transferred {
		if !p.StartTransfer(uintptr(fd), 0, false, b, off) {
			t.Fatal("not taken")
		}
		return transferred(t, p, 1)[0]
	}
	if e := begin(at); e.N != 5 || string(b[:5]) != "hello" {
		t.Errorf("read %+v, %q", e, b)
	}
	if e := begin(at + 5); e.Status != backend.Moved || e.N != 0 {
		t.Errorf("at the end %+v", e)
	}
}

func TestTransferAllocatesNothing(t *testing.T) {
	p := newPoller(t, false)
	r, w := pipe(t)
	b, x := make([]byte, 4), []byte("x")
	var some [4]backend.Transferred
	var ready [4]backend.Ready
	if n := testing.AllocsPerRun(200, func() {
		begin(t, p, r, 0, b)
		unix.Write(w, x)
		for p.Transferring() {
			p.Poll(nil, ready[:])
			p.Transferred(some[:])
		}
	}); n != 0 {
		t.Errorf("%v allocations each time", n)
	}
}
