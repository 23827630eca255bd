package server

import (
	"context"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
)

// A handshake is what a connection has while crypto/tls, for which an error in it is the last one, waits on
// a goroutine for what the peer sends. It is begun when the first record is there, so a peer that sends less
// costs none.
//
// For the connection the goroutine is one that it is paused for. Where the goroutine needs more, Data is
// allowed again, and that has it go on. The worker that finds it done calls Open.
type handshake struct {
	ctx    context.Context
	cancel context.CancelFunc
	signal chan struct{}
	done   atomic.Bool
}

// handshakes are the goroutines of a server's handshakes. Those that wait for their peers are many; those
// that compute are few, so that the workers have their turn.
type handshakes[S any] struct {
	mu      sync.Mutex
	n       int
	waiting []*tlsConn[S] // beyond the limit
	compute chan struct{}
}

// perProcessor is how many handshakes compute at once. It is more than one for the sake of those that wait
// for something in a function of the configuration.
const perProcessor = 4

// handshake is Data for a connection that is not the handler's yet.
func (w *worker[S]) handshake(c *Conn[S]) {
	s := w.server
	t := c.tls()
	h := t.shake
	switch {
	case h == nil:
		if !t.greeted(w.buf) {
			return
		}
		h = &handshake{signal: make(chan struct{}, 1)}
		h.ctx, h.cancel = context.WithCancel(context.Background())
		t.shake = h
		c.word.Or(wPaused)
		s.shakeSoon(t)
	case h.done.Load():
		t.shake = nil
		h.cancel()
		c.word.And(^uint32(wHandshake))
		t.more(len(t.feed) > 0)
		w.open(c)
	default:
		c.word.Or(wPaused)
		select {
		case h.signal <- struct{}{}:
		default:
		}
	}
}

const recordHandshake = 22

// greeted receives, and reports whether the first record is complete, or none of TLS.
func (t *tlsConn[S]) greeted(buf []byte) bool {
	n, err := t.receive(buf)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != errAgain {
		t.conn.fail(err)
		return false
	}
	t.feed = append(t.feed, buf[:n]...)
	switch {
	case len(t.feed) == 0:
		return false
	case t.feed[0] != recordHandshake:
		return true // crypto/tls will say so
	case len(t.feed) < tlsHeader:
		return false
	}
	return len(t.feed) >= tlsHeader+min(recordLength(t.feed), tlsBytes)
}

// shakeSoon has a goroutine make a handshake as soon as the limit allows it.
func (s *Server[S]) shakeSoon(t *tlsConn[S]) {
	p := &s.handshakes
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n >= s.maxHandshakes() {
		if len(p.waiting) == cap(p.waiting) {
			p.waiting = slices.DeleteFunc(p.waiting, (*tlsConn[S]).over)
		}
		p.waiting = append(p.waiting, t)
		return
	}
	p.n++
	s.running.Add(1)
	go s.shake(t)
}

// shake makes one handshake, and others that wait. A function of the configuration may end the goroutine
// (runtime.Goexit), or panic.
func (s *Server[S]) shake(t *tlsConn[S]) {
	defer s.running.Done()
	for t != nil {
		cut := true
		func() {
			defer func() {
				if v := recover(); v != nil || cut {
					t.panicked(v)
				}
				if t = s.nextHandshake(); cut && t != nil {
					s.running.Add(1)
					go s.shake(t)
				}
			}()
			t.handshake()
			cut = false
		}()
		if cut {
			return
		}
	}
}

// nextHandshake is the next one that waits, where its connection is not over by now.
func (s *Server[S]) nextHandshake() *tlsConn[S] {
	p := &s.handshakes
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.waiting) > 0 {
		t := p.waiting[0]
		p.waiting[0] = nil
		p.waiting = p.waiting[1:]
		if !t.over() {
			return t
		}
	}
	p.waiting = nil
	p.n--
	return nil
}

func (t *tlsConn[S]) over() bool { return t.conn.word.Load()&wOver != 0 }

func (t *tlsConn[S]) handshake() {
	c := t.conn
	s := c.server()
	h := t.shake
	if h.enter(s.handshakes.compute) != nil {
		return
	}
	defer func() { <-s.handshakes.compute }()
	err := t.tls.HandshakeContext(h.ctx)
	t.push(0)
	if err != nil {
		c.fail(err)
		return
	}
	h.done.Store(true)
	c.word.And(^uint32(wPaused))
	c.set(wResumed)
}

func (h *handshake) enter(compute chan struct{}) error {
	select {
	case compute <- struct{}{}:
		return nil
	case <-h.ctx.Done():
		return h.ctx.Err()
	}
}

// await waits until there is something to receive, without computing.
func (t *tlsConn[S]) await() error {
	c := t.conn
	compute := c.server().handshakes.compute
	if err := t.push(0); err != nil {
		return err
	}
	<-compute
	c.word.And(^uint32(wPaused))
	c.wake()
	select {
	case <-t.shake.signal:
	case <-t.shake.ctx.Done():
	}
	compute <- struct{}{} // which the others give back
	return t.shake.ctx.Err()
}

func (t *tlsConn[S]) panicked(value any) {
	s := t.conn.server()
	s.counts.panics.Add(1)
	e := &PanicError{value, debug.Stack()}
	s.log(slog.LevelError, "TLS configuration panicked", "value", value, "stack", string(e.Stack))
	t.conn.fail(e)
}

// unshaken is the end of a connection that never was the handler's.
func (s *Server[S]) unshaken(c *Conn[S], cause error) {
	if t := c.tls(); t.shake != nil {
		t.shake.cancel()
	}
	s.counts.handshakes.Add(1)
	if s.Logger != nil {
		s.log(slog.LevelInfo, "no TLS handshake", "from", c.RemoteAddr(), "error", cause)
	}
}
