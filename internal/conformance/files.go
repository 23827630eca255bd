package conformance

import (
	"errors"
	"os"
	"strings"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/overlapped"
)

// O7: operations on files.
var fileCases = map[string]func(*env){
	"O7/Read":       fileRead,
	"O7/Write":      fileWrite,
	"O7/Many":       fileMany,
	"O7/Fails":      fileFails,
	"O7/CloseRaces": fileClosed,
	"O8/Files":      fileCanceled,
	"O10/Files":     filePortClosed,
}

func (e *env) readAt(p *port, f *os.File, k any, b []byte, off int64, o *op) {
	e.Helper()
	if err := overlapped.ReadAt(p, f, k, b, off, o); err != nil {
		e.Fatalf("ReadAt: %v", err)
	}
}

func fileRead(e *env) {
	p := e.port()
	f := e.file("hello, world")
	var o op
	b := make([]byte, 5)
	e.readAt(p, f, "k", b, 7, &o)
	e.received(p, "k", &o, b, "world")
	e.readAt(p, f, "k", b, 10, &o)
	if n := e.failed(p, "k", &o, endOfStream); n != 2 || string(b[:n]) != "ld" {
		e.Errorf("read %q at the end", b[:n])
	}
	e.readAt(p, f, "k", b, 100, &o)
	if n := e.failed(p, "k", &o, endOfStream); n != 0 {
		e.Errorf("read %d behind the end", n)
	}
	e.readAt(p, f, "k", nil, 0, &o)
	e.received(p, "k", &o, nil, "")
	w := e.wait(p, 1, -1)
	e.parked(p, 1)
	e.readAt(p, f, "k", b, 0, &o)
	if got := e.get(w); len(got.notes) != 1 {
		e.Errorf("woken with %v, %v", got.notes, got.err)
	}
}

func fileWrite(e *env) {
	p := e.port()
	f := e.file("0123456789")
	var o op
	if err := overlapped.WriteAt(p, f, "k", []byte("ab"), 3, &o); err != nil {
		e.Fatalf("WriteAt: %v", err)
	}
	if n := e.moved(p, "k", &o); n != 2 {
		e.Errorf("wrote %d", n)
	}
	if data, err := os.ReadFile(f.Name()); string(data) != "012ab56789" {
		e.Errorf("%q, %v", data, err)
	}
}

// fileMany has more in flight than are carried out at once.
func fileMany(e *env) {
	p := e.port()
	const count, size = 60, 1000
	f := e.file(strings.Repeat("x", count*size))
	var ops [count]op
	var bufs [count][size]byte
	for i := range ops {
		e.readAt(p, f, i, bufs[i][:], int64(i*size), &ops[i])
	}
	seen := map[any]bool{}
	for range ops {
		got := e.next(p)
		if n, err := e.result(got, got.Key, &ops[got.Key.(int)]); n != size || err != nil {
			e.Fatalf("completed with %d, %v", n, err)
		}
		seen[got.Key] = true
	}
	if e.none(p); len(seen) != count {
		e.Errorf("%d of %d", len(seen), count)
	}
}

func fileFails(e *env) {
	p := e.port()
	f := e.file("x")
	var o op
	e.readAt(p, f, "k", make([]byte, 1), -1, &o)
	e.failed(p, "k", &o)
	f.Close()
	e.readAt(p, f, "k", make([]byte, 1), 0, &o)
	e.failed(p, "k", &o, os.ErrClosed)
	e.wantErr(overlapped.ReadAt(p, f, "k", nil, 0, nil), socknotify.ErrInvalid)
}

func fileClosed(e *env) {
	p := e.port()
	for range 30 {
		f := e.file("x")
		var o op
		b := make([]byte, 1)
		closed := async(f.Close)
		e.readAt(p, f, "k", b, 0, &o)
		if n, err := e.result(e.next(p), "k", &o); n != 1 && !errors.Is(err, os.ErrClosed) {
			e.Fatalf("completed with %d, %v", n, err)
		}
		e.end(closed, "closing")
	}
}

func fileCanceled(e *env) {
	p := e.port()
	const count = 40
	f := e.file("x")
	var ops [count]op
	var bufs [count][1]byte
	for i := range ops {
		e.readAt(p, f, i, bufs[i][:], 0, &ops[i])
	}
	for i := range ops {
		e.cancel(p, &ops[i])
	}
	for range ops {
		got := e.next(p)
		n, err := e.result(got, got.Key, &ops[got.Key.(int)])
		if !(n == 1 && err == nil || n == 0 && errors.Is(err, overlapped.ErrCanceled)) {
			e.Fatalf("completed with %d, %v", n, err)
		}
	}
	e.none(p)
	e.wantErr(overlapped.Cancel(p, &ops[0]), overlapped.ErrNotInFlight)
}

func filePortClosed(e *env) {
	f := e.file(strings.Repeat("x", 1<<20))
	for range 10 {
		p, q := e.port(), e.port()
		var ops [20]op
		var bufs [20][1 << 10]byte
		for i := range ops {
			e.readAt(p, f, i, bufs[i][:], 0, &ops[i])
		}
		if err := p.Close(); err != nil {
			e.Fatalf("Close: %v", err)
		}
		for i := range ops {
			bufs[i][0]++
			e.readAt(q, f, i, bufs[i][:], 0, &ops[i])
		}
		for range ops {
			e.next(q)
		}
	}
}
