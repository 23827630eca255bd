package overlapped

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backendtest"
)

// faultyFiles is a real kernel that does whatever backend.Files allows and real ones seldom do: it has less at hand
// than there is, does not take transfers, moves a part of them, and gives up reads or fails at them.
type faultyFiles struct {
	backend.Files
	reads *[backend.MaxTransfers]atomic.Bool
}

// onFileKernels runs a test on every kernel, and again with faults where it reads and writes files. What the process
// has once it has used a port, a file and a socket, it has by then.
func onFileKernels(t *testing.T, f func(t *testing.T, open func() (backend.Poller, error))) {
	for _, b := range backendtest.Files(t) {
		k, err := b.Open()
		if err != nil {
			t.Fatal(err)
		}
		_, reads := k.(backend.Files)
		useOnce(t, newPort[int](t, k, b.Name))
		t.Run(b.Name, func(t *testing.T) { f(t, b.Open) })
		if !reads {
			continue
		}
		t.Run(b.Name+" with faults", func(t *testing.T) {
			f(t, func() (backend.Poller, error) {
				k, err := b.Open()
				if err != nil {
					return nil, err
				}
				files := faultyFiles{k.(backend.Files), new([backend.MaxTransfers]atomic.Bool)}
				if b, ok := k.(backend.Batcher); ok {
					return struct {
						backend.Poller
						backend.Batcher
						faultyFiles
					}{k, b, files}, nil
				}
				return struct {
					backend.Poller
					faultyFiles
				}{k, files}, nil
			})
		})
	}
}

func useOnce(t *testing.T, p *socknotify.Port[int]) {
	t.Helper()
	defer p.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var o Op[int]
	if err := WriteAt(p, f, 1, []byte("x"), 0, &o); err != nil {
		t.Fatal(err)
	}
	completes(t, p, &o, 1, nil)
	x, _ := newPair(t)
	if err := Send(p, x, 1, []byte("x"), &o); err != nil {
		t.Fatal(err)
	}
	completes(t, p, &o, 1, nil)
}

func seldom() bool { return rand.IntN(6) == 0 }

// some is a part, of whole blocks where b is of blocks: of a direct write that is not, the system may carry out what
// lies in one extent before it refuses the rest.
func some(b []byte) []byte {
	if blocks := len(b) / alignment; blocks*alignment == len(b) {
		return b[:alignment*(1+rand.IntN(blocks))]
	}
	return b[:1+rand.IntN(len(b))]
}

func (f faultyFiles) ReadNow(file uintptr, b []byte, off int64) (int, bool) {
	if seldom() {
		return 0, false
	}
	if seldom() {
		b = some(b)
	}
	return f.Files.ReadNow(file, b, off)
}

func (f faultyFiles) StartTransfer(file uintptr, token uint32, write bool, b []byte, off int64) bool {
	if seldom() {
		return false
	}
	if seldom() {
		b = some(b)
	}
	f.reads[token].Store(!write)
	return f.Files.StartTransfer(file, token, write, b, off)
}

// Transferred gives wrong results for reads only: the bytes of a write must be reported.
func (f faultyFiles) Transferred(ended []backend.Transferred) int {
	n := f.Files.Transferred(ended)
	for i := range ended[:n] {
		e := &ended[i]
		if f.reads[e.Token].Load() && seldom() {
			e.N, e.Status = 0, []backend.TransferStatus{backend.Abandoned, backend.Failed}[rand.IntN(2)]
		}
	}
	return n
}
