package http2

import (
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

// A responseWriter is the http.ResponseWriter of a stream. It is used by the handler's goroutine. A small body is kept until
// the handler returns, so that headers and body go out together, with a Content-Length.
type responseWriter struct {
	st       *stream
	header   http.Header
	snapshot http.Header // the headers when WriteHeader was called
	status   int         // 0 before WriteHeader
	declared int64       // Content-Length of the response, or -1
	written  int64
	sent     bool // the headers were sent
	taken    bool // the stream was taken over, or the request waits
	over     bool // every write fails: the handler has returned, or the stream has ended
	trailers []string
	buf      *[]byte
}

const bodyBuffer = 4 << 10

var bodyBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, bodyBuffer)
	return &b
}}

// release gives the buffer back. With over all writes fail from then on.
func (w *responseWriter) release(over bool) {
	w.over = w.over || over
	if w.buf != nil {
		*w.buf = (*w.buf)[:0]
		bodyBuffers.Put(w.buf)
		w.buf = nil
	}
}

func (w *responseWriter) Header() http.Header { return w.header }

// WriteHeader sends an informational status at once. Any other is sent with the first part of the
// body. After one that is not informational it does nothing.
func (w *responseWriter) WriteHeader(status int) {
	if w.over || w.status != 0 {
		return
	}
	switch {
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	case status < 200:
		if status == http.StatusContinue {
			w.stopExpecting()
		}
		w.st.send(&wire.Header{Status: status, Fields: w.header}, nil, false)
		return
	}
	w.stopExpecting()
	w.status, w.snapshot = status, w.header.Clone()
	if value := w.snapshot.Get("Content-Length"); value != "" {
		if n, err := strconv.ParseUint(value, 10, 63); err == nil {
			w.declared = int64(n)
		} else {
			w.snapshot.Del("Content-Length")
		}
	}
	for _, value := range w.snapshot["Trailer"] {
		for name := range strings.SplitSeq(value, ",") {
			w.declare(textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name)))
		}
	}
}

// stopExpecting records that the client needs no status 100.
func (w *responseWriter) stopExpecting() {
	c := w.st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	w.st.expects = false
}

func (w *responseWriter) declare(name string) {
	if validTrailer(name) && !slices.Contains(w.trailers, name) {
		w.trailers = append(w.trailers, name)
	}
}

func (w *responseWriter) Write(p []byte) (int, error) { return w.write(p) }

func (w *responseWriter) WriteString(s string) (int, error) { return w.write([]byte(s)) }

func (w *responseWriter) write(p []byte) (int, error) {
	if w.over {
		return 0, w.st.failure()
	}
	w.WriteHeader(http.StatusOK)
	if !bodyAllowed(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if w.written += int64(len(p)); w.declared >= 0 && w.written > w.declared {
		return 0, http.ErrContentLength
	}
	size := len(p)
	for w.buffered()+len(p) > bodyBuffer {
		if w.buffered() == 0 {
			if err := w.send(p, false); err != nil {
				return 0, err
			}
			return size, nil
		}
		n := bodyBuffer - len(*w.buf)
		*w.buf = append(*w.buf, p[:n]...)
		if p = p[n:]; len(*w.buf) == bodyBuffer {
			if err := w.flush(false); err != nil {
				return 0, err
			}
		}
	}
	if w.buf == nil {
		w.buf = bodyBuffers.Get().(*[]byte)
	}
	*w.buf = append(*w.buf, p...)
	return size, nil
}

// buffered returns how many bytes of the body are in the buffer. A writer of large pieces has no buffer.
func (w *responseWriter) buffered() int {
	if w.buf == nil {
		return 0
	}
	return len(*w.buf)
}

// flush sends what is in the buffer. end is set when the handler has returned.
func (w *responseWriter) flush(end bool) error {
	var p []byte
	if w.buf != nil {
		p = *w.buf
		*w.buf = p[:0]
	}
	return w.send(p, end)
}

// send sends the headers, unless they were sent, and a part of the body. If it fails, so do all
// later writes: a handler that flushes each write would otherwise fill the buffer again, and never
// learn that the stream has ended.
func (w *responseWriter) send(p []byte, end bool) error {
	err := w.sendParts(p, end)
	w.over = w.over || err != nil
	return err
}

// sendParts is send without what follows from an error.
func (w *responseWriter) sendParts(p []byte, end bool) error {
	var block *wire.Header
	head := w.st.r.Method == http.MethodHead
	if !w.sent {
		w.sent = true
		w.complete(p, head, end)
		block = &wire.Header{Status: w.status, Fields: w.snapshot}
	}
	if head {
		if block == nil {
			return nil
		}
		return w.st.send(block, nil, true)
	}
	if !end {
		return w.st.send(block, p, false)
	}
	w.promote()
	if len(w.trailers) == 0 {
		return w.st.send(block, p, true)
	}
	if err := w.st.send(block, p, false); err != nil {
		return err
	}
	trailers := &wire.Header{Fields: make(http.Header)}
	for _, name := range w.trailers {
		if values := w.header[name]; len(values) > 0 {
			trailers.Fields[name] = values
		}
	}
	if len(trailers.Fields) == 0 {
		trailers = nil
	}
	return w.st.send(trailers, nil, true)
}

// complete adds the headers that the handler has not set. p is the beginning of the body, or all of it if end is set.
func (w *responseWriter) complete(p []byte, head, end bool) {
	h := w.snapshot
	has := func(name string) bool {
		_, ok := h[name]
		return ok
	}
	allowed := bodyAllowed(w.status)
	if end && !has("Content-Length") && allowed && (len(p) > 0 || !head) {
		h.Set("Content-Length", strconv.Itoa(len(p)))
	}
	if !has("Content-Type") && allowed && len(p) > 0 && h.Get("Content-Encoding") == "" {
		h.Set("Content-Type", http.DetectContentType(p))
	}
	if !has("Date") {
		h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	for name := range h {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			delete(h, name)
		}
	}
	if strings.EqualFold(h.Get("Connection"), "close") {
		w.st.c.goAway(false)
	}
}

// promote declares the trailers that the handler has set with http.TrailerPrefix.
func (w *responseWriter) promote() {
	for name, values := range w.header {
		if short, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			short = textproto.CanonicalMIMEHeaderKey(short)
			w.declare(short)
			w.header[short] = values
		}
	}
	slices.Sort(w.trailers)
}

// finish is called when the handler has returned.
func (w *responseWriter) finish() {
	if w.taken {
		return
	}
	w.WriteHeader(http.StatusOK)
	w.flush(true)
}

// Flush sends what was written.
func (w *responseWriter) Flush() { w.FlushError() }

// FlushError is Flush for http.ResponseController.
func (w *responseWriter) FlushError() error {
	if w.over {
		return w.st.failure()
	}
	w.WriteHeader(http.StatusOK)
	headersSent := w.sent
	err := w.flush(false)
	if headersSent && err == nil && w.st.r.Method == http.MethodHead {
		err = w.st.failure() // the headers have ended the stream
	}
	return err
}

// SetReadDeadline is for http.ResponseController.
func (w *responseWriter) SetReadDeadline(at time.Time) error {
	w.st.setDeadline(reads, at)
	return nil
}

// SetWriteDeadline is for http.ResponseController.
func (w *responseWriter) SetWriteDeadline(at time.Time) error {
	w.st.setDeadline(writes, at)
	return nil
}

// EnableFullDuplex is for http.ResponseController. HTTP/2 is always so.
func (w *responseWriter) EnableFullDuplex() error { return nil }

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
