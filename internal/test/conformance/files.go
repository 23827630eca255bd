package conformance

import (
	"errors"
	"os"
	"strings"

	"github.com/socknotify/socknotify/overlapped"
)

// O7: operations on files.
var fileCases = map[string]func(*env){
	"O7/CloseRaces": fileClosed,
	"O10/Files":     filePortClosed,
}

func (e *env) readAt(p *port, f *os.File, k any, b []byte, off int64, o *op) {
	e.Helper()
	if err := overlapped.ReadAt(p, f, k, b, off, o); err != nil {
		e.Fatalf("ReadAt: %v", err)
	}
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
