package overlapped

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"syscall"

	"pgregory.net/rapid"
)

// A fileOp is an operation on a file and what the model knows of it.
type fileOp struct {
	modelOp
	guardedBuffer
	f     *modelFile
	write *modelWrite // nil for a read
	modelView
	aligned bool
	refusal error // of package os, for the same on the twin
	closed  bool  // the file was closed during the operation
	started bool
}

// untouched fails if anybody has written to the buffer, or beside it, since it was the caller's again (O2).
func (op *fileOp) untouched(t *rapid.T) {
	if !op.intact() {
		t.Fatal("a buffer was written to that is not the port's")
	}
}

// ours reserves the buffer for this test.
func (op *fileOp) ours(t *rapid.T) {
	if !op.inside() {
		t.Fatal("written beside the buffer")
	}
	if op.write != nil && !bytes.Equal(op.b, op.write.data) {
		t.Fatal("a write has changed its buffer")
	}
	op.clear()
}

// asks has package os do the same to the twin. How much matters little to it, where there are offsets for it.
func (op *fileOp) asks() error {
	b := op.b
	if len(b) > alignment && op.off+int64(len(b)) > 0 {
		b = b[:alignment+len(b)%alignment]
	}
	var err error
	if op.write != nil {
		_, err = op.f.twin.WriteAt(b, op.off)
	} else {
		_, err = op.f.twin.ReadAt(b, op.off)
		copy(b, sentinels)
	}
	if err == io.EOF || op.picky() && errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}

// picky tells that it depends on how the system has laid the file out whether this is EINVAL: what of a direct read
// is a hole, or behind the end, need not be aligned, nor where the rest begins if the file grows during the operation.
func (op *fileOp) picky() bool {
	return op.f.disk != nil && op.f.disk.direct && (!op.aligned || len(op.beside) > 0)
}

// completed checks how the operation has ended.
func (op *fileOp) completed(t *rapid.T, n int, err error) {
	b := op.b
	if n < 0 || n > len(b) {
		t.Fatalf("%d of %d bytes", n, len(b))
	}
	why := op.ending(err)
	d := op.f.disk
	switch {
	case op.refusal != nil:
		if n != 0 || why == nil {
			t.Fatalf("%s at %d: %d, %v; want %v", op.name(), op.off, n, err, op.refusal)
		}
	case why != nil:
		if n > 0 && n == len(b) {
			t.Fatalf("%s at %d: %d of %d, %v", op.name(), op.off, n, len(b), err)
		}
	case op.write != nil:
		if n != len(b) || err != nil {
			t.Fatalf("wrote %d of %d, %v", n, len(b), err)
		}
	case (n == len(b)) != (err == nil) || err != nil && err != io.EOF:
		t.Fatalf("read %d of %d at %d: %v", n, len(b), op.off, err)
	}
	if op.write == nil {
		least, most := op.room(len(b))
		if n > most || n < least && why == nil || !op.allows(b[:n]) {
			t.Fatalf("read %d at %d, %v; want %d to %d of what is there", n, op.off, err, least, most)
		}
	}
	op.ours(t)
	if d == nil {
		return
	}
	if op.write != nil {
		d.ended(op.write, n)
	} else {
		d.reads = slices.DeleteFunc(d.reads, func(r *fileOp) bool { return r == op })
	}
}

// ending is an error for which less than all may have been moved, and nil where err is none of those that may come.
func (op *fileOp) ending(err error) error {
	var of *Error
	if !errors.As(err, &of) || of.Op != op.name() || of.Handle != ^uintptr(0) {
		return nil
	}
	switch {
	case op.canceled && of.Kind == ErrCanceled && of.Err == nil:
		return err
	case of.Kind != nil:
		return nil
	case op.closed && errors.Is(err, os.ErrClosed):
		return err
	case op.refusal != nil && sameCause(of.Err, op.refusal):
		return err
	case op.picky() && errors.Is(err, syscall.EINVAL):
		return err
	}
	return nil
}

// sameCause reports whether two errors of package os differ in the name of the file at most.
func sameCause(a, b error) bool {
	var x, y *os.PathError
	if errors.As(a, &x) && errors.As(b, &y) {
		return x.Op == y.Op && x.Err.Error() == y.Err.Error()
	}
	return a.Error() == b.Error()
}

func (op *fileOp) name() string {
	if op.write != nil {
		return "write"
	}
	return "read"
}
