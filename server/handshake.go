package server

import (
	"container/list"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
)

// A handshake is what a connection has until its TLS handshake is over. crypto/tls runs on a goroutine, because an
// error of a handshake is final there, also one that only says that nothing has come. The goroutine is started when the
// first record is complete, so a peer that sends less costs none.
//
// For the connection the goroutine is one that it is paused for. Where the goroutine needs more bytes, Data is allowed
// again, and the worker that calls it resumes the goroutine. The worker that finds the handshake done calls Open.
type handshake struct {
	tls    *tlsConn
	from   net.Addr // the peer's; after a reset the socket has forgotten it
	ctx    context.Context
	cancel context.CancelFunc
	resume chan struct{} // receives when the goroutine may compute again
	done   atomic.Bool
	reg    [1]socknotify.Registration[*Key] // for the goroutine

	// Under handshakes.mu.
	in     *list.List // one of handshakes, or nil
	at     *list.Element
	origin *origin
	began  time.Time // when the goroutine was started
	since  time.Time // since when it is in crypto/tls
}

// handshakes are the unfinished TLS handshakes of a server. A handshake is in at most one of the lists.
//
// Two numbers are bounded. Goroutines are at most Server.MaxHandshakes, since each costs memory while it waits for its
// peer. Those that compute are few, so that workers are not kept waiting for a processor; a handshake that waits for
// its peer is not one of them, and one that has been in crypto/tls for longer than overdue is no longer counted, for it
// may be waiting in a function of the configuration.
//
// While a goroutine could compute and no slot is free for it, a handshake that waits for its peer is ended (see evict).
// So handshakes that wait delay no other. While all that may compute do so, none is ended, because a free slot would be
// of no use.
type handshakes struct {
	mu      sync.Mutex
	n       int // goroutines
	bound   int // of len(computing)
	origins map[netip.Addr]*origin
	late    *time.Timer // fires when the first of computing is overdue, or a handshake may be ended
	armed   bool

	fresh     list.List // without a goroutine: first record complete
	ready     list.List // what the peer had to send has come
	computing list.List // in crypto/tls; the first has been there longest
	waiting   list.List // for the peer
	leaving   list.List // cancelled while it waited; the goroutine is about to end
}

// An origin counts the goroutines of unfinished handshakes of one address.
type origin struct {
	addr netip.Addr
	n    int
}

const (
	// perProcessor is how many handshakes compute at once for each processor.
	perProcessor = 4
	// overdue is how long a handshake is counted among those that compute.
	overdue = 20 * time.Millisecond
	// minAge is the age below which a handshake is not ended to make room for another: more than most peers need to
	// answer. While slots are short, at least MaxHandshakes/minAge handshakes can begin in a second.
	minAge = 500 * time.Millisecond
)

var errCrowded = errors.New("server: TLS handshake ended to make room for another: peer did not answer")

// originOf is the address that an unfinished handshake is counted for. Any host on an IPv6 network of 64 bits may use
// all of its addresses, so they count as one. Peers without an IP address count as one, too.
func originOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	if addr.Is6() {
		p, _ := addr.Prefix(64)
		addr = p.Addr()
	}
	return addr
}

func (p *handshakes) init() {
	p.bound = perProcessor * runtime.GOMAXPROCS(0)
	p.origins = make(map[netip.Addr]*origin)
}

// handshake is Data for a connection that is not the handler's yet.
func (w *worker) handshake(c *conn) {
	s := w.server
	t := c.tls()
	h := t.hs
	switch {
	case h.ctx == nil:
		if !t.receiveFirstRecord(w.buf) {
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
		t.setMore(len(t.feed) > 0)
		w.open(c)
	default:
		c.word.Or(wPaused)
		s.handshakes.mu.Lock()
		defer s.handshakes.mu.Unlock()
		if h.in == &s.handshakes.waiting { // and was not evicted
			s.handshakes.move(h, &s.handshakes.ready)
			s.dispatch()
		}
	}
}

// greeted receives, and reports whether crypto/tls has something to do with what was received.
func (t *tlsConn) receiveFirstRecord(buf []byte) bool {
	n, err := t.receive(buf[:min(len(buf), tlsHeader+maxCiphertext-len(t.feed))])
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != errAgain {
		t.conn.fail(err)
		return false
	}
	t.feed = append(t.feed, buf[:n]...)
	return hasFirstRecord(t.feed)
}

// Of records, as crypto/tls bounds them.
const (
	recordAlert     = 21
	recordHandshake = 22
	maxCiphertext   = 16384 + 2048 // of one that is not of TLS 1.3
)

// greeting reports whether b, which is what a client has sent, is its whole first record, or such that crypto/tls
// refuses it without waiting for the rest.
func hasFirstRecord(b []byte) bool {
	if len(b) < tlsHeader {
		return false
	}
	n := recordLength(b)
	if b[0] != recordHandshake && b[0] != recordAlert || b[1] >= 0x10 || n > maxCiphertext {
		return true
	}
	return len(b) >= tlsHeader+n
}

// move takes a handshake out of its list and appends it to another, or to none. The lock is held.
func (p *handshakes) move(h *handshake, to *list.List) {
	if h.in != nil {
		h.in.Remove(h.at)
	}
	if h.in = to; to != nil {
		h.at = to.PushBack(h)
	}
}

// dispatch lets handshakes compute as far as the bounds allow it: first those whose peers have answered, since they
// give back what they hold. It is called after each change of the lists. The lock is held.
//
// It adds to the server's running only for a connection that is in the list fresh. The end of that connection waits
// for the lock (see handshakeFailed), so a worker is running as well.
func (s *server) dispatch() {
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
		case p.n >= s.maxHandshakes():
			// Those that are about to end make room for as many as could compute.
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
			s.running.Add(1)
			go s.runHandshake(h)
		}
		h.since = time.Now()
		p.move(h, &p.computing)
	}
	if p.fresh.Len()+p.ready.Len() > 0 {
		s.dispatchAt(p.computing.Front().Value.(*handshake).since.Add(overdue))
	}
}

// dispatchAt arms the timer, unless it is armed or there is nothing to wait for (a zero time). The lock is held.
func (s *server) dispatchAt(at time.Time) {
	p := &s.handshakes
	if p.armed || at.IsZero() {
		return
	}
	p.armed = true
	if p.late == nil {
		p.late = time.AfterFunc(time.Until(at), s.passOver)
	} else {
		p.late.Reset(time.Until(at))
	}
}

// passOver lets others compute in the place of those that are overdue.
func (s *server) passOver() {
	p := &s.handshakes
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = false
	now := time.Now()
	for e := p.computing.Front(); e != nil; e = p.computing.Front() {
		h := e.Value.(*handshake)
		if now.Sub(h.since) < overdue {
			break
		}
		p.move(h, nil)
	}
	s.dispatch()
}

// evict ends a handshake that waits for its peer: of those whose address has the most unfinished handshakes, the one
// that began first. If that one is younger than minAge none is ended, and next is when it may be; next is zero if none
// waits. The lock is held.
func (p *handshakes) evict() (evicted bool, next time.Time) {
	var worst *handshake
	for e := p.waiting.Front(); e != nil; e = e.Next() {
		h := e.Value.(*handshake)
		if worst == nil || h.origin.n > worst.origin.n || h.origin.n == worst.origin.n && h.began.Before(worst.began) {
			worst = h
		}
	}
	if worst == nil {
		return false, next
	}
	if next = worst.began.Add(minAge); time.Now().Before(next) {
		return false, next
	}
	p.move(worst, &p.leaving)
	worst.tls.conn.fail(errCrowded)
	worst.cancel()
	return true, time.Time{}
}

// begin counts a goroutine in. The lock is held.
func (p *handshakes) begin(h *handshake) {
	addr := originOf(h.from)
	o := p.origins[addr]
	if o == nil {
		o = &origin{addr: addr}
		p.origins[addr] = o
	}
	o.n++
	p.n++
	h.origin, h.began = o, time.Now()
}

// leave counts a goroutine out.
func (s *server) leaveHandshake(h *handshake) {
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

// shake makes a handshake. A function of the configuration may panic there, or end the goroutine (runtime.Goexit).
func (s *server) runHandshake(h *handshake) {
	defer s.running.Done()
	defer s.leaveHandshake(h)
	cut := true
	defer func() {
		if cut {
			h.tls.panicked(recover())
		}
	}()
	h.tls.handshake(h)
	cut = false
}

func (t *tlsConn) handshake(h *handshake) {
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

// await sends what crypto/tls has to say and waits until there is something to receive, without computing.
func (t *tlsConn) waitForPeer() error {
	c, h := t.conn, t.hs
	s := c.server()
	p := &s.handshakes
	p.mu.Lock()
	p.move(h, &p.waiting) // before the peer can answer
	s.dispatch()
	p.mu.Unlock()
	err := t.push()
	if err == nil {
		c.word.And(^uint32(wPaused))
		c.enable(&h.reg)
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

// enable is release for a goroutine that is no worker and has changed the connection's word. If another owns the
// connection, that one will enable it according to the new word.
func (c *conn) enable(reg *[1]socknotify.Registration[*Key]) {
	if c.word.Or(wOwned)&wOwned != 0 {
		return
	}
	for {
		socket, word := c.socket(), c.word.Load()
		if !c.word.CompareAndSwap(word, word&^wOwned) {
			continue
		}
		if word&wSpecial != 0 {
			c.wake()
			return
		}
		f := filter(word)
		reg[0] = socknotify.Registration[*Key]{Sock: socket, Key: c.key(), Filter: f, Op: socknotify.OpEnable, Trigger: oneShot}
		c.server().shards[c.shard].Process(reg[:], nil, 0)
		if err := reg[0].Result; err != nil {
			c.refused(socket, err)
		}
		if !c.reacquire(f) {
			return
		}
	}
}

func (t *tlsConn) panicked(value any) {
	s := t.conn.server()
	s.counts.panics.Add(1)
	e := &PanicError{value, debug.Stack()}
	if value == nil { // not even panic(nil) is recovered as that
		e.Value = "runtime.Goexit was called"
	}
	s.logLimited(&s.quotas.panics, slog.LevelError, "TLS configuration panicked", "value", e.Value, "stack", string(e.Stack))
	t.conn.fail(e)
}

// handshakeFailed is the end of a connection that never was the handler's.
func (s *server) handshakeFailed(c *conn, cause error) {
	h := c.tls().hs
	if h.ctx != nil {
		h.cancel()
		s.handshakes.mu.Lock()
		if h.in == &s.handshakes.fresh {
			s.handshakes.move(h, nil)
		}
		s.handshakes.mu.Unlock()
	}
	s.counts.failedHandshakes.Add(1)
	from := h.from
	if from == nil {
		from = unknownAddr{}
	}
	s.logLimited(&s.quotas.handshakes, slog.LevelInfo, "no TLS handshake", "from", from, "error", cause)
}

// An unknownAddr is that of a peer which had reset the connection before it was accepted.
type unknownAddr struct{}

func (unknownAddr) Network() string { return "tcp" }
func (unknownAddr) String() string  { return "unknown" }
