package conn

import (
	"container/list"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/serving/clock"
	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
	"github.com/socknotify/socknotify/server/internal/engine"
)

// A handshake is the state of an unfinished TLS handshake. crypto/tls runs on a goroutine of its
// own, because any error of a handshake is final in crypto/tls, also one that says that nothing has
// arrived yet. The goroutine is started when the first record is complete, so a peer that sends
// less has none.
//
// While the goroutine computes, the connection is paused. If the goroutine needs more bytes, it
// allows Data again and waits; the worker that would call Data wakes it instead. The worker that
// finds the handshake done calls Open.
type handshake struct {
	tls    *tlsStack
	from   net.Addr // the peer's address, which cannot be asked for after a reset
	ctx    context.Context
	cancel context.CancelFunc
	resume chan struct{} // receives when the goroutine may compute again
	done   atomic.Bool

	// Under handshakes.mu.
	in     *list.List // one of handshakes, or nil
	at     *list.Element
	origin *origin
	began  time.Time // when the goroutine was started
	since  time.Time // when it has last entered crypto/tls
}

// handshakes are the unfinished TLS handshakes of a server. A handshake is in at most one of the
// lists.
//
// Two numbers are bounded. The number of goroutines is at most Server.MaxHandshakes, since each
// needs memory while it waits for its peer. The number of those that compute is small, so that
// workers get processors. A handshake that waits for its peer does not compute. Neither is one
// counted that has been in crypto/tls for longer than overdue, because it may wait in a function of
// the configuration.
//
// While a goroutine could compute but no slot is free, a handshake that waits for its peer is ended
// (see evict). So handshakes that wait delay no others. While the bound of those that compute is
// reached, none is ended, because a free slot would not help.
type handshakes struct {
	mu      sync.Mutex
	n       int // goroutines
	bound   int // of len(computing)
	origins map[netip.Addr]*origin
	clock   clock.Clock
	late    clock.Timer // fires when the first of computing is overdue, or a handshake may be ended
	armed   bool

	fresh     list.List // without a goroutine: first record complete
	ready     list.List // what the peer had to send has come
	computing list.List // in crypto/tls; the first has been there longest
	waiting   list.List // for the peer
	leaving   list.List // cancelled while it waited; the goroutine is about to end
}

// An origin counts the goroutines of unfinished handshakes with one address.
type origin struct {
	addr netip.Addr
	n    int
}

const (
	// perProcessor bounds the number of handshakes that compute at once, for each processor.
	perProcessor = 4
	// overdue is the time after which a handshake in crypto/tls is no longer counted as computing.
	overdue = 20 * time.Millisecond
	// minAge is the age below which a handshake is not ended to make room for another. It is longer
	// than most peers need to answer. While there are no free slots, at least MaxHandshakes/minAge
	// handshakes can begin in a second.
	minAge = 500 * time.Millisecond
)

// originOf returns the address that an unfinished handshake is counted for. The addresses of an
// IPv6 network of 64 bits count as one, because any host on it may use all of them. All peers
// without an IP address count as one, too.
func originOf(a net.Addr) netip.Addr {
	ip, ok := a.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Addr{}
	}
	return engine.Network(ip.AddrPort().Addr())
}

func (p *handshakes) init() {
	p.clock = clock.Current()
	p.bound = perProcessor * runtime.GOMAXPROCS(0)
	p.origins = make(map[netip.Addr]*origin)
}

// handshake is called instead of Data while the handshake is unfinished.
func (o *Owner) handshake(c *Conn) {
	s := o.shared
	t := c.secured().stack
	h := t.hs
	switch {
	case h.ctx == nil:
		if !t.receiveFirstRecord(o.buf) {
			return
		}
		h.ctx, h.cancel = context.WithCancel(context.Background())
		h.resume = make(chan struct{}, 1)
		c.word.Or(wPaused)
		s.handshakes.mu.Lock()
		defer s.handshakes.mu.Unlock()
		s.handshakes.move(h, &s.handshakes.fresh)
		s.dispatch()
	case h.done.Load():
		t.hs = nil
		h.cancel()
		c.word.And(^uint32(wHandshake))
		s.Counts.Handshaking.Add(-1)
		s.Counts.Handshakes.Add(1)
		c.secured().takeOver()
		o.open(c)
	default:
		c.word.Or(wPaused)
		s.handshakes.mu.Lock()
		defer s.handshakes.mu.Unlock()
		if h.in == &s.handshakes.waiting { // otherwise it was evicted
			s.handshakes.move(h, &s.handshakes.ready)
			s.dispatch()
		}
	}
}

// receiveFirstRecord receives, and reports whether the handshake can begin.
func (t *tlsStack) receiveFirstRecord(buf []byte) bool {
	if tlsrecord.Begins(t.first) { // it came behind a header (see Server.Preamble)
		return true
	}
	n, err := t.conn.recvRaw(buf[:min(len(buf), tlsrecord.MaxRecord-len(t.first))])
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != tlsrecord.ErrNothing {
		t.conn.fail(err)
		return false
	}
	t.first = append(t.first, buf[:n]...)
	return tlsrecord.Begins(t.first)
}

// move removes a handshake from its list and appends it to another, unless that is nil. The lock is
// held.
func (p *handshakes) move(h *handshake, to *list.List) {
	if h.in != nil {
		h.in.Remove(h.at)
	}
	if h.in = to; to != nil {
		h.at = to.PushBack(h)
	}
}

// dispatch lets handshakes compute as far as the bounds allow it. Those whose peers have answered
// come first, since they free their slots soonest. dispatch is called after each change of the
// lists. The lock is held.
//
// dispatch calls running.Add only for a connection that is in the list fresh. The end of that
// connection waits for the lock (see handshakeFailed), so a worker is running and the counter is
// not zero.
func (s *Shared) dispatch() {
	p := &s.handshakes
	for p.computing.Len() < p.bound {
		e := p.ready.Front()
		if e == nil {
			e = p.fresh.Front()
		}
		if e == nil {
			return
		}
		h := e.Value.(*handshake)
		switch {
		case h.in == &p.ready:
			h.resume <- struct{}{}
		case h.tls.conn.word.Load()&wOver != 0:
			p.move(h, nil)
			continue
		case p.n >= s.MaxHandshakes:
			// Evict as many as could compute, counting those that are about to end.
			for p.leaving.Len() < min(p.fresh.Len(), p.bound-p.computing.Len()) {
				evicted, next := p.evict()
				if !evicted {
					s.dispatchAt(next)
					break
				}
			}
			return
		default:
			p.begin(h)
			s.Running.Add(1)
			go s.runHandshake(h)
		}
		h.since = p.clock.Now()
		p.move(h, &p.computing)
	}
	if p.fresh.Len()+p.ready.Len() > 0 {
		s.dispatchAt(p.computing.Front().Value.(*handshake).since.Add(overdue))
	}
}

// dispatchAt arms the timer, unless it is armed or at is zero. The lock is held.
func (s *Shared) dispatchAt(at time.Time) {
	p := &s.handshakes
	if p.armed || at.IsZero() {
		return
	}
	p.armed = true
	if p.late == nil {
		p.late = p.clock.AfterFunc(-p.clock.Since(at), s.passOver)
	} else {
		p.late.Reset(-p.clock.Since(at))
	}
}

// passOver stops counting the overdue handshakes as computing, and lets others compute.
func (s *Shared) passOver() {
	p := &s.handshakes
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = false
	now := p.clock.Now()
	for e := p.computing.Front(); e != nil; e = p.computing.Front() {
		h := e.Value.(*handshake)
		if now.Sub(h.since) < overdue {
			break
		}
		p.move(h, nil)
	}
	s.dispatch()
}

// evict ends a handshake that waits for its peer: from the address with the most unfinished
// handshakes, the one that began first. If that one is younger than minAge, none is ended, and next
// is when it may be. If none waits, next is zero. The lock is held.
func (p *handshakes) evict() (evicted bool, next time.Time) {
	var worst *handshake
	for e := p.waiting.Front(); e != nil; e = e.Next() {
		h := e.Value.(*handshake)
		if worst == nil || h.origin.n > worst.origin.n ||
			h.origin.n == worst.origin.n && h.began.Before(worst.began) {
			worst = h
		}
	}
	if worst == nil {
		return false, next
	}
	if next = worst.began.Add(minAge); p.clock.Now().Before(next) {
		return false, next
	}
	p.move(worst, &p.leaving)
	worst.tls.conn.fail(errCrowded)
	worst.cancel()
	return true, time.Time{}
}

// begin adds a goroutine to the counts. The lock is held.
func (p *handshakes) begin(h *handshake) {
	addr := originOf(h.from)
	o := p.origins[addr]
	if o == nil {
		o = &origin{addr: addr}
		p.origins[addr] = o
	}
	o.n++
	p.n++
	h.origin, h.began = o, p.clock.Now()
}

// leaveHandshake removes a goroutine from the counts.
func (s *Shared) leaveHandshake(h *handshake) {
	p := &s.handshakes
	p.mu.Lock()
	defer p.mu.Unlock()
	p.move(h, nil)
	p.n--
	if h.origin.n--; h.origin.n == 0 {
		delete(p.origins, h.origin.addr)
	}
	s.dispatch()
}

// runHandshake is the goroutine of a handshake. A function of the configuration may panic there, or
// end the goroutine (runtime.Goexit).
func (s *Shared) runHandshake(h *handshake) {
	defer s.Running.Done()
	defer s.leaveHandshake(h)
	s.Label()
	cut := true
	defer func() {
		if cut {
			c := h.tls.conn
			c.fail(s.Panicked("TLS configuration panicked", recover(), h.from))
		}
	}()
	h.tls.handshake(h)
	cut = false
}

func (t *tlsStack) handshake(h *handshake) {
	c := t.conn
	err := t.tls.HandshakeContext(h.ctx)
	t.push()
	if err != nil {
		c.fail(err)
		return
	}
	h.done.Store(true)
	c.word.And(^uint32(wPaused))
	c.set(wResumed)
}

// waitForPeer sends what crypto/tls has written and waits until there is something to receive.
func (t *tlsStack) waitForPeer() error {
	c, h := t.conn, t.hs
	s := c.shared()
	p := &s.handshakes
	p.mu.Lock()
	p.move(h, &p.waiting) // before push, after which the peer can answer
	s.dispatch()
	p.mu.Unlock()
	err := t.push()
	if err == nil {
		c.word.And(^uint32(wPaused))
		c.wake()
		select {
		case <-h.resume:
		case <-h.ctx.Done():
		}
		err = h.ctx.Err()
	}
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if h.in == &p.waiting || h.in == &p.ready {
			p.move(h, &p.leaving)
		}
	}
	return err
}

// handshakeFailed counts and logs a connection that ended before its handshake was done.
func (s *Shared) handshakeFailed(c *Conn, cause error) {
	h := c.secured().stack.hs
	if h.ctx != nil {
		h.cancel()
		s.handshakes.mu.Lock()
		if h.in == &s.handshakes.fresh {
			s.handshakes.move(h, nil)
		}
		s.handshakes.mu.Unlock()
	}
	s.Counts.Handshaking.Add(-1)
	switch cause {
	case ErrHandshake:
		s.Counts.LateHandshakes.Add(1)
	case errCrowded:
		s.Counts.EvictedHandshakes.Add(1)
	default:
		s.Counts.RejectedHandshakes.Add(1)
	}
	s.Log(slog.LevelDebug, "TLS handshake failed",
		"remote", engine.NameOfPeer(h.from), "err", cause)
}

// startTLS puts TLS on a new connection.
func (c *Conn) startTLS(config *tls.Config) {
	s := &tlsStack{conn: c}
	s.hs = &handshake{tls: s, from: c.RemoteAddr()}
	s.tls = tlsrecord.Server((*tlsInner)(s), config, &c.shared().tlsOptions)
	t := &tlsConn{conn: c, stack: s}
	t.link = link{c.link.listener, t}
	c.link = &t.link
	c.ensureOpening()
	c.wrapped = true
	c.word.Or(wHandshake)
}
