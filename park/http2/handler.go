package http2

import (
	"context"
	"net/http"
	"os"

	"golang.org/x/net/http2"
)

// begin gives the stream an exchange, and returns the context of its request. The caller holds
// c.mu.
func (st *stream) begin() (ctx context.Context) {
	st.exchange = &exchange{declared: -1}
	st.cond.L = &st.c.mu
	ctx, st.cancel = context.WithCancel(st.c.ctx)
	st.w = responseWriter{st: st, header: make(http.Header), declared: -1}
	return ctx
}

// growStack makes the goroutine's stack large enough for most handlers and for a write by package tls. While the stack is
// nearly empty that is cheap; when it overflows step by step in the handler, its frames are copied each time, which was a
// fifth of the CPU time of a small request.
//
//go:noinline
func growStack() byte {
	var frame [5 << 10]byte
	return frame[len(os.Args)&1]
}

// run calls the handler.
func (st *stream) run() {
	growStack()
	returned := false
	defer func() { st.returned(returned) }() // also after runtime.Goexit
	st.c.try(func() {
		if st.announces {
			st.c.announce()
		}
		st.call()
		st.w.finish()
		returned = true
	})
}

// call calls the handler, and removes the files of a form that it has parsed, also if it panics. As
// in net/http, they are removed before the response ends.
func (st *stream) call() {
	returned := false
	defer func() {
		if f := st.r.MultipartForm; f != nil && !(returned && st.holder == heldByWait) {
			f.RemoveAll()
		}
	}()
	if st.serve != nil {
		st.serve(&st.w, st.r)
	} else {
		st.c.handler.ServeHTTP(&st.w, st.r)
	}
	returned = true
}

// returned is called when the handler has returned, or panicked.
func (st *stream) returned(ok bool) {
	c := st.c
	waits := ok && st.holder == heldByWait
	st.w.release(true)
	c.mu.Lock()
	if st.body.size > 0 && st.bodyErr == nil {
		st.bodyErr = http.ErrBodyReadAfterClose // for a goroutine that reads on: it must not take this for the body's end
	}
	st.dropBody()
	if st.holder == heldByWait && !ok {
		c.suspended--
		defer st.dropWait()
	}
	switch {
	case waits:
		st.handlerEnded()
	case st.err != nil:
	case !ok:
		st.reset(http2.ErrCodeInternal, nil)
	case st.holder != heldByHandler:
		st.cancel()
		st.exchange = &handled
	case !st.gotEnd: // the client need not send the rest of the body
		st.reset(http2.ErrCodeNo, nil)
	}
	c.flush()
	c.running--
	for len(c.waiting) > 0 && c.running < c.server.maxStreams() {
		next := c.waiting[0]
		c.waiting = c.waiting[1:]
		if next.err == nil {
			c.running++
			go next.run()
		}
	}
	over := c.over()
	c.unlock()
	if over {
		c.server.remove(c)
	}
}
