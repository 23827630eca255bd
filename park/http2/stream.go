package http2

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/serving/muxed"
)

// A stream is a request and its response. Its fields are protected by conn.mu.
type stream struct {
	*exchange // what its handler needs; &handled when that has returned and the stream is still open
	c         *conn
	outflow   int64 // what the client can receive
	err       error
	taker     muxed.Waker // nil unless the stream was taken over (see taken.go)
	wait      *wait       // nil unless the request waits (see suspended.go)
	input     *queue      // for the taker of a duplex stream, or nil if there is nothing
	id        uint32
	inflow    int32 // what the client may send
	unacked   int32 // what was received and read, and not returned to the client
	gotEnd    bool  // the client has sent everything
	sentEnd   bool  // everything was sent or queued
	duplex    bool  // the stream of a CONNECT request was taken over
	tunnel    bool  // the taker has it for a connection
	plain     bool  // it is that of a CONNECT request without a protocol; set with taker
}

// An exchange is what a stream has besides as long as its handler runs. Its fields are protected by
// conn.mu, except for those of the handler.
type exchange struct {
	cond   sync.Cond // something has changed that the handler may wait for
	cancel context.CancelFunc
	w      responseWriter
	r      *http.Request
	serve  func(http.ResponseWriter, *http.Request) // instead of the handler, or nil

	declared int64 // Content-Length of the request, or -1
	received int64

	body       queue // received, and not read
	bodyErr    error // for Read after body
	bodyClosed bool  // what arrives is discarded
	expects    bool  // the client waits for status 100 before it sends the body
	announces  bool  // ConnState is called before the handler is
	trailer    http.Header
	timers     [2]*time.Timer // by handlerTimeout
}

// A handlerTimeout is a timeout of a stream whose handler runs.
type handlerTimeout uint8

const (
	// reads makes Read fail when it has returned what has arrived, unless that is the whole body.
	reads handlerTimeout = iota
	// writes resets the stream, so that Write fails.
	writes
)

// search returns the place of an open stream. The caller holds c.mu.
func (c *conn) search(id uint32) (at int, ok bool) {
	return slices.BinarySearchFunc(c.streams, id, func(st *stream, id uint32) int {
		return cmp.Compare(st.id, id)
	})
}

// stream returns an open stream, or nil. The caller holds c.mu.
func (c *conn) stream(id uint32) *stream {
	if i, ok := c.search(id); ok {
		return c.streams[i]
	}
	return nil
}

// wake makes the stream look at what has changed. The caller holds c.mu.
func (st *stream) wake() {
	if st.taker != nil && (st.err != nil || st.wait == nil) {
		st.taker.Wake()
	}
	st.cond.Broadcast()
}

// handleHeaders opens a stream, or handles a request's trailers. The caller holds c.mu.
func (c *conn) handleHeaders(f *http2.MetaHeadersFrame) error {
	id := f.StreamID
	if id%2 == 0 {
		return c.server.count("headers_even", http2.ConnectionError(http2.ErrCodeProtocol))
	}
	streamError := http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
	if st := c.stream(id); st != nil {
		return st.handleTrailers(f)
	}
	switch {
	case id <= c.last && c.wasReset(id):
		return nil
	case id <= c.last:
		return c.server.count("stream_went_down", http2.ConnectionError(http2.ErrCodeProtocol))
	}
	c.last = id
	switch {
	case len(c.streams) >= c.server.maxStreams() && !c.acked:
		streamError.Code = http2.ErrCodeRefusedStream
		return c.server.count("over_max_streams_race", streamError)
	case len(c.streams) >= c.server.maxStreams():
		return c.server.count("over_max_streams", streamError)
	case f.HasPriority() && f.Priority.StreamDep == id:
		return c.server.count("priority", streamError)
	}
	// A handler may run on after its stream was reset. So the handlers are counted besides the streams.
	if c.running >= c.server.maxStreams() && len(c.waiting) >= 4*c.server.maxStreams() {
		return c.server.count("too_many_early_resets", http2.ConnectionError(http2.ErrCodeEnhanceYourCalm))
	}
	st := &stream{c: c, id: id, inflow: c.streamWindow(), outflow: c.window, gotEnd: f.StreamEnded()}
	if err := st.newRequest(st.begin(), f); err != nil {
		st.cancel()
		return c.server.count("malformed_request", err)
	}
	if f.Truncated {
		st.serve = headersTooLarge
	}
	c.streams = append(c.streams, st)
	if len(c.streams) == 1 {
		c.changed(http.StateActive)
		st.announces = true
	}
	if d := c.server.Server.ReadTimeout; d > 0 && !st.gotEnd {
		st.startTimer(reads, d)
	}
	if d := c.server.Server.WriteTimeout; d > 0 {
		st.startTimer(writes, d)
	}
	if c.running >= c.server.maxStreams() {
		c.waiting = append(c.waiting, st)
	} else {
		c.running++
		go st.run()
	}
	return nil
}

// begin gives the stream an exchange, and returns the context of its request. The caller holds
// c.mu.
func (st *stream) begin() (ctx context.Context) {
	st.exchange = &exchange{declared: -1}
	st.cond.L = &st.c.mu
	ctx, st.cancel = context.WithCancel(st.c.ctx)
	st.w = responseWriter{st: st, header: make(http.Header), declared: -1}
	return ctx
}

func headersTooLarge(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
	fmt.Fprint(w, "<h1>HTTP Error 431</h1><p>Request Header Field(s) Too Large</p>")
}

func (st *stream) handleTrailers(f *http2.MetaHeadersFrame) error {
	streamError := http2.StreamError{StreamID: st.id, Code: http2.ErrCodeProtocol}
	switch {
	case st.gotEnd:
		streamError.Code = http2.ErrCodeStreamClosed
		return st.c.server.count("headers_half_closed", streamError)
	case st.duplex, st.r.Method == http.MethodConnect: // RFC 9113 (8.5)
		return st.c.server.count("trailers_connect", streamError)
	case !f.StreamEnded():
		return st.c.server.count("trailers_not_ended", streamError)
	case len(f.PseudoFields()) > 0:
		return st.c.server.count("trailers_pseudo", streamError)
	case st.declared >= 0 && st.received != st.declared:
		return st.c.server.count("trailers_length", streamError)
	}
	st.trailer = make(http.Header)
	for _, field := range f.RegularFields() {
		if !validTrailer(field.Name) || !trimmed(field.Value) {
			return st.c.server.count("trailers_bogus", streamError)
		}
		st.trailer.Add(field.Name, field.Value)
	}
	st.gotEnd = true
	st.endIfDone()
	st.wake()
	return nil
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
		if f := st.r.MultipartForm; f != nil && !(returned && st.wait != nil) {
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
	waits := ok && st.wait != nil
	st.w.release(true)
	c.mu.Lock()
	if st.body.size > 0 && st.bodyErr == nil {
		st.bodyErr = http.ErrBodyReadAfterClose // for a goroutine that reads on: it must not take this for the body's end
	}
	st.dropBody()
	if st.wait != nil && !ok {
		c.suspended--
		defer st.dropWait()
	}
	switch {
	case waits:
		st.handlerEnded()
	case st.err != nil:
	case !ok:
		st.reset(http2.ErrCodeInternal, nil)
	case st.taker != nil:
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

// endIfDone ends the stream if both sides have sent everything. The caller holds c.mu.
func (st *stream) endIfDone() {
	if st.gotEnd && st.sentEnd {
		st.close(errStreamEnded)
	}
}

var (
	errStreamEnded  = fmt.Errorf("http2: the stream has ended: %w", os.ErrClosed)
	errWriteTimeout = fmt.Errorf("http2: the stream was reset: %w", os.ErrDeadlineExceeded)
)

// failure returns the error of a write to a stream that has ended, at least for the handler.
func (st *stream) failure() error {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	if st.err == nil {
		return errStreamEnded
	}
	return st.err
}

// reset ends the stream with a RST_STREAM frame. The handler's reads and writes fail with cause, or
// if that is nil with the code. The caller holds c.mu.
func (st *stream) reset(code http2.ErrCode, cause error) {
	if st.err != nil {
		return
	}
	c := st.c
	c.buffer().b = appendReset(c.buffer().b, st.id, code)
	c.remember(st.id)
	if cause == nil {
		cause = http2.StreamError{StreamID: st.id, Code: code}
	}
	st.close(cause)
}

// close ends the stream. The caller holds c.mu.
func (st *stream) close(err error) {
	if st.err != nil {
		return
	}
	c := st.c
	st.err = err
	if i, ok := c.search(st.id); ok {
		c.streams = slices.Delete(c.streams, i, i+1)
	}
	st.stopTimers()
	if err != errStreamEnded {
		st.dropBody()
		st.dropInput()
	}
	if st.exchange != &handled {
		st.cancel()
	}
	st.wake()
	if st.taker != nil {
		c.unline(st)
	}
	c.idleSince = momentOf(time.Now())
	if len(c.streams) == 0 {
		c.changed(http.StateIdle)
		if c.partSince != 0 {
			c.interrupt() // the part may have been there for too long
		}
		if c.server.noKeepAlive.Load() && !c.goingAway && !c.ended {
			c.queueGoAway(http2.ErrCodeNo)
		}
	}
	c.settle()
}

// stopTimers ends the timeouts of the handler. The caller holds c.mu.
func (st *stream) stopTimers() {
	for _, t := range st.timers {
		if t != nil {
			t.Stop()
		}
	}
}

// startTimer begins a timeout. The caller holds c.mu.
func (st *stream) startTimer(t handlerTimeout, d time.Duration) {
	st.timers[t] = time.AfterFunc(d, func() {
		st.c.mu.Lock()
		defer st.c.mu.Unlock()
		st.timeOut(t)
	})
}

// timeOut is called at the end of a timeout. The caller holds c.mu.
func (st *stream) timeOut(t handlerTimeout) {
	switch {
	case t == reads && !st.gotEnd && st.bodyErr == nil:
		st.bodyErr = os.ErrDeadlineExceeded
		st.bodyClosed = true
		st.wake()
	case t == writes && st.taker == nil:
		st.reset(http2.ErrCodeInternal, errWriteTimeout)
		st.c.startWriting()
	}
}

// allowance returns how many of n bytes may be sent now in a frame. The caller holds c.mu.
func (st *stream) allowance(n int) int {
	return int(max(min(int64(n), maxFrameSize, st.outflow, st.c.outflow), 0))
}

// send queues a header block, if it is not nil, and a part of the body, and writes them. It waits for the client's windows,
// and while much is queued. It fails if the stream has ended before everything was queued.
func (st *stream) send(block *header, p []byte, end bool) error {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.err == nil && st.sentEnd {
		return errStreamEnded
	}
	for st.err == nil && (block != nil || len(p) > 0 || end && !st.sentEnd) {
		if n := st.allowance(len(p)); c.queued() >= maxOut || block == nil && n == 0 && len(p) > 0 {
			switch {
			case !c.writing && c.out != nil:
				c.flush()
			case c.queued() >= maxOut:
				st.waitIn(&c.roomless)
			case st.outflow > 0:
				st.waitIn(&c.shut)
			default: // the client opens the stream's window, or the stream ends
				c.wakeSender()
				st.cond.Wait()
			}
			continue
		} else if block != nil {
			st.sentEnd = end && len(p) == 0
			c.appendHeader(c.buffer(), st.id, block, st.sentEnd)
			block = nil
		} else {
			st.appendData(p[:n], end && n == len(p))
			p = p[n:]
		}
	}
	err := st.err
	if err == nil {
		st.endIfDone()
	}
	c.wakeSender()
	c.flush()
	return err
}

// appendData queues a DATA frame. The caller holds c.mu.
func (st *stream) appendData(p []byte, end bool) {
	c, flags := st.c, http2.Flags(0)
	if st.sentEnd = end; end {
		flags = http2.FlagDataEndStream
	}
	o := c.buffer()
	o.b = append(appendFrame(o.b, http2.FrameData, flags, st.id, len(p)), p...)
	st.outflow -= int64(len(p))
	c.outflow -= int64(len(p))
}

// waitIn waits in a line of streams, until wakeSender has chosen the stream or the stream has changed. The caller holds
// c.mu.
func (st *stream) waitIn(line *[]*stream) {
	st.c.wakeSender()
	*line = append(*line, st)
	st.cond.Wait()
	leave(line, st)
}

// leave removes a stream from a line, if it is there.
func leave(line *[]*stream, st *stream) {
	*line = slices.DeleteFunc(*line, func(other *stream) bool { return other == st })
}

// wakeSender wakes one stream that waits to send and can send now. A stream that stops sending, or waits, calls it again. So
// all that can send are woken one after the other, and the others not at all: a frame of a few bytes that opens a window by
// a byte must not wake hundreds of handlers. The caller holds c.mu.
func (c *conn) wakeSender() {
	line := &c.roomless
	switch {
	case c.queued() >= maxOut:
		return
	case len(*line) == 0 && c.outflow > 0:
		line = &c.shut
	}
	if len(*line) > 0 {
		(*line)[0].wake()
		*line = slices.Delete(*line, 0, 1)
	}
}
