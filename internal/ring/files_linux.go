package ring

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
)

// files holds the ring for reads and writes of files (backend.Files). The ring is opened with the first transfer.
type files struct {
	mu   sync.Mutex // held to open the ring
	ring atomic.Pointer[fileRing]
}

// fileToken is the token of the fileRing in reports of the epoll descriptor.
const fileToken uint64 = 1<<64 - 2

// Suits implements backend.Files. The ring serves regular files alone: reads if the file system has RWF_NOWAIT, and
// reads and writes with O_DIRECT. For other reads, and for writes to the page cache, a kernel thread would make the
// system call, which is more expensive than a goroutine that makes it.
func (p *Poller) Suits(file uintptr) (use backend.FileUse) {
	var st unix.Stat_t
	if unix.Fstat(int(file), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return use
	}
	flags, err := unix.FcntlInt(file, unix.F_GETFL, 0)
	if err != nil {
		return use
	}
	appends := flags&unix.O_APPEND != 0
	if p.always {
		return backend.FileUse{Read: true, Write: !appends}
	}
	direct := flags&unix.O_DIRECT != 0
	var one [1]byte
	_, e := readNow(file, one[:], 0)
	use.Read = direct || e != unix.EOPNOTSUPP
	use.ReadNow = use.Read && !direct
	use.Write = direct && !appends
	return use
}

// ReadNow implements backend.Files.
func (p *Poller) ReadNow(file uintptr, b []byte, off int64) (n int, ok bool) {
	n, e := readNow(file, b, off)
	if e != 0 {
		return 0, false
	}
	return n, true
}

// readNow makes a raw system call, because it does not wait.
func readNow(file uintptr, b []byte, off int64) (int, unix.Errno) {
	v := unix.Iovec{Base: unsafe.SliceData(b)}
	v.SetLen(len(b))
	n, _, e := unix.RawSyscall6(unix.SYS_PREADV2, file, uintptr(unsafe.Pointer(&v)), 1, uintptr(off), 0, unix.RWF_NOWAIT)
	return int(n), e
}

// fileRing returns the ring, or nil if none can be opened.
func (p *Poller) fileRing() *fileRing {
	if f := p.files.ring.Load(); f != nil {
		return f
	}
	p.files.mu.Lock()
	defer p.files.mu.Unlock()
	if f := p.files.ring.Load(); f != nil {
		return f
	}
	f, err := openFileRing(p.Descriptor())
	if err != nil {
		return nil // the caller uses a goroutine instead
	}
	p.files.ring.Store(f)
	return f
}

// StartTransfer implements backend.Files.
func (p *Poller) StartTransfer(file uintptr, token uint32, write bool, b []byte, off int64) bool {
	f := p.fileRing()
	return f != nil && f.start(int32(file), token, write, b, off)
}

// CancelTransfer implements backend.Files.
func (p *Poller) CancelTransfer(token uint32) {
	if f := p.files.ring.Load(); f != nil {
		f.cancel(token)
	}
}

// Due implements backend.Files.
func (p *Poller) Due() bool {
	f := p.files.ring.Load()
	return f != nil && f.due()
}

// Transferred implements backend.Files.
func (p *Poller) Transferred(ended []backend.Transferred) int {
	f := p.files.ring.Load()
	if f == nil {
		return 0
	}
	return f.take(ended)
}

// Transferring implements backend.Files.
func (p *Poller) Transferring() bool {
	f := p.files.ring.Load()
	return f != nil && f.outstanding.Load() > 0
}

// Poll implements backend.Poller. It removes the report of the fileRing itself; see Due.
func (p *Poller) Poll(changes []backend.Change, ready []backend.Ready) int {
	n := p.Poller.Poll(changes, ready)
	if f := p.files.ring.Load(); f != nil && n > 0 {
		return p.withoutFiles(f, ready, n)
	}
	return n
}

// withoutFiles removes the report of the fileRing itself. If ready was full, it polls again to fill the free place.
// A further report of a handle that is in ready already is merged, because one Poll returns at most one report of a
// handle (T1).
func (p *Poller) withoutFiles(f *fileRing, ready []backend.Ready, n int) int {
	at := slices.IndexFunc(ready[:n], func(r backend.Ready) bool { return r.Token == fileToken })
	if at < 0 {
		return n
	}
	f.armed.Store(false)
	copy(ready[at:], ready[at+1:n])
	for n--; n == len(ready)-1 && p.Poller.Poll(nil, ready[n:]) > 0; {
		again := ready[n]
		same := slices.IndexFunc(ready[:n], func(r backend.Ready) bool { return r.Token == again.Token })
		switch {
		case again.Token == fileToken:
			f.armed.Store(false)
		case same >= 0:
			ready[same].Mask |= again.Mask
		default:
			n++
		}
	}
	return n
}

func (s *files) close() error {
	if f := s.ring.Load(); f != nil {
		return f.close()
	}
	return nil
}
