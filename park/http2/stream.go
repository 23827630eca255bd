package http2

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/serving/muxed"
	"github.com/socknotify/socknotify/park/http2/internal/flow"
)

// A stream is a request and its response. Its fields are protected by conn.mu.
type stream struct {
	*exchange // what its handler needs; &handled when that has returned and the stream is still open
	c         *conn
	err       error       // why it has ended, or nil while it is open
	taker     muxed.Waker // of the holder, nil if that is the handler
	wait      *wait       // nil unless the holder is heldByWait
	input     *queue      // what the holder of a CONNECT request has not read, or nil if there is nothing
	id        uint32
	inflow    flow.Receive
	outflow   flow.Send
	holder    holder
	gotEnd    bool // the client has sent everything
	sentEnd   bool // everything was sent or queued
}

// The states of a stream (RFC 9113, 5.1) when no goroutine holds the lock:
//
//	err             gotEnd  sentEnd
//	nil             no      no       open
//	nil             yes     no       half-closed (remote): receivedEnd
//	nil             no      yes      half-closed (local): queuedEnd
//	errStreamEnded  yes     yes      closed: endIfDone
//	another one     either, not both closed: reset by a side, or its connection has ended
//
// A stream with an err is not in conn.streams, and its gotEnd and sentEnd do not change any more.

// A holder is what answers a stream.
type holder uint8

const (
	heldByHandler     holder = iota
	heldByWait               // park.Suspend: nothing answers it until Resume is called
	heldByWriter             // another package writes the response
	heldByDuplex             // of a CONNECT request it also reads what the client sends
	heldByTunnel             // it has the stream for a connection
	heldByPlainTunnel        // the same, and the request was CONNECT without a protocol
)

// setHolder changes the holder. The handler gives the stream away, and gets it back only from a wait. The caller holds c.mu.
func (st *stream) setHolder(to holder, taker muxed.Waker) {
	if (st.holder == heldByHandler) == (to == heldByHandler) || to == heldByHandler && st.holder != heldByWait {
		panic(fmt.Sprintf("http2: holder %d becomes %d", st.holder, to))
	}
	st.holder, st.taker = to, taker
}

// duplex reports whether what the client sends goes to the holder. The caller holds c.mu.
func (st *stream) duplex() bool { return st.holder >= heldByDuplex }

// tunnel reports whether the stream stands for a connection. The caller holds c.mu.
func (st *stream) tunnel() bool { return st.holder >= heldByTunnel }

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

// handled is the exchange of all streams that were taken over or wait, and whose handlers have
// returned. It is never changed. A Read of such a request's body, which a handler may have left to
// another goroutine, fails.
var handled = exchange{bodyErr: http.ErrBodyReadAfterClose, bodyClosed: true}

// A wait is what a stream has whose request waits without a handler. When the handler has returned,
// the stream has no exchange of its own until the wait ends. The fields are protected by conn.mu.
type wait struct {
	handler waitHandler
	resume  func(http.ResponseWriter, *http.Request) // nil until Resume is called
	drop    func()
	method  string
	header  http.Header // of the response, or nil
}

// A waitHandler is what the handler of a request that waits is doing. The wait ends when it has
// returned and Resume was called. If it has panicked, the wait stays, and the stream is reset.
type waitHandler uint8

const (
	waitRuns waitHandler = iota
	waitReturned
	waitPanicked
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

// unopened reports whether no stream id was opened yet. The caller holds c.mu.
func (c *conn) unopened(id uint32) bool { return id%2 == 0 || id > c.last }

// wake makes the stream look at what has changed. A request that waits looks at its end alone. The caller holds c.mu.
func (st *stream) wake() {
	if st.holder > heldByWait || st.holder == heldByWait && st.err != nil {
		st.taker.Wake()
	}
	st.cond.Broadcast()
}
