package overlapped

import (
	"errors"
	"math"
	"os"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/handles"
)

// A filesModel is a few files with operations, among those of a socket, on one port.
type filesModel struct {
	*operationsModel
	disks  []*modelDisk
	files  []*modelFile
	ops    []fileOp // which outlive the port
	serial uint32
}

var (
	fileLengths = []int{0, 1, 10, 511, alignment, 3 * alignment, 64 << 10, 64<<10 + 1, 300_000, 1<<20 + alignment}
	fileModes   = []int{os.O_RDWR, os.O_RDWR, os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_APPEND}
)

// startFile starts a read or a write, of one that is in flight as well.
func (m *filesModel) startFile(t *rapid.T) {
	op := &m.ops[rapid.IntRange(0, len(m.ops)-1).Draw(t, "op")]
	f := m.files[rapid.IntRange(0, len(m.files)-1).Draw(t, "file")]
	write := rapid.Bool().Draw(t, "write")
	n := rapid.SampledFrom(fileLengths).Draw(t, "length")
	off := m.offset(t, f, write)
	aligned := f.disk != nil && f.disk.direct
	if aligned && rapid.IntRange(0, 7).Draw(t, "aligned") > 0 {
		n, off = n/alignment*alignment, off/alignment*alignment
	} else {
		aligned = false
	}
	if write && f.disk != nil && off >= 0 && !f.disk.free(off, n) {
		return // which of the two would be seen is not for us to say
	}
	if op.inFlight {
		if err := m.begin(op, f, write, op.b, off); !errors.Is(err, socknotify.ErrInvalid) {
			t.Fatalf("started while in flight: %v", err)
		}
		return
	}
	if op.started {
		op.untouched(t)
	}
	op.f, op.modelView, op.aligned, op.write, op.canceled, op.closed = f, modelView{off: off}, aligned, nil, false, false
	if op.b = op.buffer(n, aligned); write {
		m.fill(op.b)
		op.write = &modelWrite{off, slices.Clone(op.b)}
	}
	op.refusal = op.asks()
	if d := f.disk; d != nil {
		if write && op.refusal == nil {
			d.began(op.write)
		} else if !write {
			op.before, op.beside = d.from(off, n), slices.Clone(d.writes)
			d.reads = append(d.reads, op)
		}
	}
	if err := m.begin(op, f, write, op.b, off); err != nil {
		t.Fatalf("not started: %v", err)
	}
	op.started, op.inFlight = true, true
}

func (m *filesModel) begin(op *fileOp, f *modelFile, write bool, b []byte, off int64) error {
	if write {
		return WriteAt(m.p, f.File, &op.modelOp, b, off, &op.o)
	}
	return ReadAt(m.p, f.File, &op.modelOp, b, off, &op.o)
}

// offset draws one inside the file, at its end or behind it, or one that makes no sense.
func (m *filesModel) offset(t *rapid.T, f *modelFile, write bool) int64 {
	end := 0
	if f.disk != nil {
		end = len(f.disk.data)
	}
	switch where := rapid.IntRange(0, 19).Draw(t, "where"); {
	case where == 0:
		return -1
	case where == 1 && !write:
		return rapid.SampledFrom([]int64{1 << 40, math.MaxInt64 - 1, math.MaxInt64 - 128<<10}).Draw(t, "far")
	case where < 4:
		return int64(max(0, end-1))
	case where < 6:
		return int64(end)
	case where < 8:
		return int64(end + alignment + 1)
	}
	return int64(rapid.IntRange(0, min(end, 2<<20)).Draw(t, "offset"))
}

// fill makes bytes that no other write has in that place, but by chance. They come again after a prime number of
// them, to be quick.
func (m *filesModel) fill(b []byte) {
	m.serial += 0x9e3779b9
	x := m.serial
	first := b[:min(len(b), 4093)]
	for i := range first {
		x = x*1664525 + 1013904223
		first[i] = byte(x>>24) | 1
	}
	for n := len(first); n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

func (m *filesModel) cancelFile(t *rapid.T) {
	m.cancelOp(t, &m.ops[rapid.IntRange(0, len(m.ops)-1).Draw(t, "op")].modelOp)
}

// closeFile closes one while operations on it may be in flight, and opens another in its place.
func (m *filesModel) closeFile(t *rapid.T) {
	at := rapid.IntRange(0, len(m.files)-1).Draw(t, "file")
	f := m.files[at]
	switch {
	case !f.closed && rapid.IntRange(0, 3).Draw(t, "really") == 0:
		for i := range m.ops {
			if op := &m.ops[i]; op.inFlight && op.f == f {
				op.closed = true
			}
		}
		f.close()
	case f.closed && f.disk != nil:
		m.files[at] = f.disk.open(t, rapid.SampledFrom(fileModes).Draw(t, "mode"))
	}
}

func (m *filesModel) inFlight() (n int) {
	for i := range m.ops {
		if m.ops[i].inFlight {
			n++
		}
	}
	return n
}

// waitFiles dequeues until all has completed on the files.
func (m *filesModel) waitFiles(t *rapid.T) {
	for m.inFlight() > 0 {
		if m.take(t, rapid.IntRange(1, 4).Draw(t, "entries"), soon) == 0 {
			t.Fatalf("%d operations on files never complete", m.inFlight())
		}
	}
}

// closePort closes it with operations in flight, which are the model's again by that (O10).
func (m *filesModel) closePort(t *rapid.T) {
	if err := m.p.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range m.ops {
		op := &m.ops[i]
		if !op.started {
			continue
		}
		if op.inFlight {
			op.inFlight = false
			op.ours(t)
		}
		f := op.f.File
		if err := ReadAt(m.p, f, &op.modelOp, op.b, 0, &op.o); err != socknotify.ErrClosed {
			t.Fatalf("started on a closed port: %v", err)
		}
		if err := Cancel(m.p, &op.o); err != socknotify.ErrClosed {
			t.Fatalf("canceled on a closed port: %v", err)
		}
	}
	for _, d := range m.disks {
		d.check(t)
		d.closeAll()
	}
	for i := range m.ops {
		m.ops[i].untouched(t)
	}
}

// specials are files that cannot be read or written at an offset.
func specials(t *testing.T) (files []*modelFile) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	files = append(files, &modelFile{File: dir, twin: dir})
	if runtime.GOOS == "windows" {
		return files // a pipe pays no heed to the offset there, and a read waits
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return append(files, &modelFile{File: r, twin: r}, &modelFile{File: w, twin: w})
}

// Random sequences of operations on files, among those of a socket, against a model of O1, O2, O7, O8, O10, O12
// and O13. What package os would say of each is asked of package os.
func TestFilesModel(t *testing.T) {
	places := filePlaces(t)
	odd := specials(t)
	onFileBackends(t, func(t *testing.T, open func() (backend.Poller, error)) {
		handles.NoneLeft(t, "")
		ops := make([]fileOp, 12)
		rapid.Check(t, func(t *rapid.T) {
			k, err := open()
			if err != nil {
				t.Fatal(err)
			}
			for i := range ops {
				// The Overlapped is not a new one each time: that of a closed port is as good.
				op := &ops[i]
				op.file, op.around, op.started, op.inFlight = op, nil, false, false
			}
			runFilesModel(t, newPort[*modelOp](t, k, ""), ops, places, odd)
		})
	})
}

func runFilesModel(t *rapid.T, p *socknotify.Port[*modelOp], ops []fileOp, places []filePlace, odd []*modelFile) {
	defer p.Close()
	s, peer, err := backendtest.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	defer s.Close()
	m := &filesModel{operationsModel: newOperationsModel(p, s, peer), ops: ops}
	for _, at := range places {
		d := newModelDisk(t, at)
		defer d.closeAll()
		m.disks = append(m.disks, d)
		for _, mode := range fileModes[1:] {
			m.files = append(m.files, d.open(t, mode))
		}
		m.files = append(m.files, m.files[len(m.files)-len(fileModes)+1]) // the one for all is the likeliest
	}
	m.files = append(m.files, odd...)
	t.Repeat(map[string]func(*rapid.T){
		"start file":  m.startFile,
		"and":         m.startFile,
		"and another": m.startFile,
		"cancel file": m.cancelFile,
		"close file":  m.closeFile,
		"wait files":  m.waitFiles,
		"start":       m.start,
		"batch":       m.batch,
		"wait":        m.wait,
		"wait all":    m.waitAll,
		"cancel":      m.cancel,
		"peer send":   m.peerSends,
		"peer recv":   m.peerReceivesAll,
	})
	if rapid.Bool().Draw(t, "all") {
		m.waitFiles(t)
	}
	m.closePort(t)
}

// A filePlace is a directory on some file system, and how files there are to be opened.
type filePlace struct {
	dir    string
	direct bool
}
