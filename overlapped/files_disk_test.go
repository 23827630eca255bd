package overlapped

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"

	"pgregory.net/rapid"
)

// A modelDisk is a file's contents as the model knows them. What is opened as the file, modelFiles, has a twin
// beside it, which package os is asked about: why it would fail.
type modelDisk struct {
	name, twin string
	direct     bool // it is opened with direct
	data       []byte
	writes     []*modelWrite // in flight, or in flight when the port was closed
	reads      []*fileOp     // in flight
	files      []*modelFile
}

// A modelWrite may leave its bytes any time.
type modelWrite struct {
	off  int64
	data []byte
}

func (w *modelWrite) end() int64 { return w.off + int64(len(w.data)) }

// newModelDisk makes a file in the place of an earlier one.
func newModelDisk(t *rapid.T, at filePlace) *modelDisk {
	d := &modelDisk{name: filepath.Join(at.dir, "file"), twin: filepath.Join(at.dir, "twin"), direct: at.direct}
	d.data = make([]byte, rapid.SampledFrom([]int{0, 10, 50 * alignment}).Draw(t, "size"))
	contents(d.data, 0)
	for _, name := range []string{d.name, d.twin} {
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, d.data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func (d *modelDisk) open(t *rapid.T, flags int) *modelFile {
	if d.direct {
		flags |= directFlag
	}
	f := &modelFile{disk: d}
	var err error
	if f.File, err = os.OpenFile(d.name, flags, 0); err != nil {
		t.Fatal(err)
	}
	if f.twin, err = os.OpenFile(d.twin, flags, 0); err != nil {
		f.File.Close()
		t.Fatal(err)
	}
	d.files = append(d.files, f)
	return f
}

func (d *modelDisk) closeAll() {
	for _, f := range d.files {
		f.close()
	}
}

// free reports whether no write is in progress there.
func (d *modelDisk) free(off int64, n int) bool {
	end := off + int64(n)
	return !slices.ContainsFunc(d.writes, func(w *modelWrite) bool { return off < w.end() && w.off < end })
}

// began adds a write. A concurrent read may see it.
func (d *modelDisk) began(w *modelWrite) {
	d.writes = append(d.writes, w)
	for _, r := range d.reads {
		r.beside = append(r.beside, w)
	}
}

// ended tells that a write has left so many of its bytes.
func (d *modelDisk) ended(w *modelWrite, n int) {
	d.writes = slices.DeleteFunc(d.writes, func(other *modelWrite) bool { return other == w })
	if n > 0 {
		if grow := w.off + int64(n) - int64(len(d.data)); grow > 0 {
			d.data = append(d.data, make([]byte, grow)...)
		}
		copy(d.data[w.off:], w.data[:n])
	}
}

// from is a copy of up to n bytes from an offset on.
func (d *modelDisk) from(off int64, n int) []byte {
	if off < 0 || off >= int64(len(d.data)) {
		return nil
	}
	return bytes.Clone(d.data[off:min(int64(len(d.data)), off+int64(n))])
}

// A modelView is what can be read of a range: what was there before, zeros behind that, and any bytes of the
// writes beside it.
type modelView struct {
	off    int64
	before []byte
	beside []*modelWrite
}

// room is how many of n bytes there are, at least and at most.
func (v *modelView) room(n int) (least, most int) {
	least = min(n, len(v.before))
	most = least
	for _, w := range v.beside {
		most = max(most, int(min(int64(n), w.end()-v.off)))
	}
	return least, most
}

// allows reports whether b can have been read.
func (v *modelView) allows(b []byte) bool {
	old := v.before[:min(len(b), len(v.before))]
	if bytes.Equal(b[:len(old)], old) && len(v.beside) == 0 {
		return len(b) == len(old)
	}
	for i, c := range b {
		if i < len(old) && c == old[i] || i >= len(old) && c == 0 {
			continue
		}
		at := v.off + int64(i)
		if !slices.ContainsFunc(v.beside, func(w *modelWrite) bool {
			return at >= w.off && at < w.end() && w.data[at-w.off] == c
		}) {
			return false
		}
	}
	return true
}

// check compares the file itself with what is known of it.
func (d *modelDisk) check(t *rapid.T) {
	b, err := os.ReadFile(d.name)
	if err != nil {
		t.Fatal(err)
	}
	v := modelView{before: d.data, beside: d.writes}
	least, most := v.room(1 << 30)
	if len(b) < least || len(b) > most || !v.allows(b) {
		t.Fatalf("%s has other contents than were written: %d bytes; want %d to %d", d.name, len(b), least, most)
	}
}

// A modelFile is an open file.
type modelFile struct {
	*os.File
	twin   *os.File
	disk   *modelDisk // nil where all that is to come is an error: a pipe, a directory
	closed bool
}

func (f *modelFile) close() {
	f.closed = true
	f.File.Close()
	f.twin.Close()
}
