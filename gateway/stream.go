package gateway

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/durations"
	"github.com/socknotify/socknotify/internal/nowait"
	"github.com/socknotify/socknotify/park"
)

// A stream is the connection of a client of Server-Sent Events, or of one long poll. It was taken over from net/http, and is
// parked. Any goroutine writes to it while it is parked: send gives the bytes to the system at once, and queues what the
// system does not take. The connection's function, turn, runs on a worker of the lot when the connection can be written to,
// when the peer closes it, and when a heartbeat or a timeout is due. So there is no goroutine and no timer for each client.
type stream struct {
	subscriber
	g      *Gateway
	conn   net.Conn      // a *net.TCPConn, or a *park.Conn around a *tls.Conn
	socket nowait.Socket // of the innermost connection
	turnFn func(net.Conn)

	mu      sync.Mutex
	queue   *queue        // nil if nothing is queued
	wrote   time.Duration // when something was last written, on the gateway's clock
	at      []uint64      // the position of each topic, for SSE; nil without durable topics
	one     [1]uint64     // for at, with one topic
	joined  bool          // what the client has missed was sent
	form    form
	plain   bool // conn is what socket belongs to
	running bool // the function runs, or the connection is not parked yet
	last    bool // the connection ends when the queue is empty
	ended   bool
	strays  uint16     // bytes that the client has sent after its request; used by turn
	poll    *pollState // of a long poll
	missed  backlog
}

// A queue has the bytes that a connection has not taken. The blocks are shared with other clients.
type queue struct {
	blocks [][]byte
	size   int
	since  time.Duration // when the connection took something
}

// blockCost is what a block in a queue costs besides its bytes: its slice, in an array of up to twice the length that is
// needed.
const blockCost = 48

var (
	errExpired = errors.New("gateway: the token has expired")
	errDrain   = errors.New("gateway: the node is being drained")
)

// maxHead bounds the bytes that a client may send after its request, in all. It has no reason to
// send any, and each byte makes turn run.
const maxHead = 4 << 10

// newStream returns a stream that is not parked yet.
func (g *Gateway) newStream(conn net.Conn, f form) *stream {
	s := &stream{g: g, form: f, running: true, wrote: g.now()}
	s.to = s
	switch c := conn.(type) {
	case *net.TCPConn, *net.UnixConn:
		s.conn, s.socket = conn, nowait.Of(conn)
		s.plain = s.socket.OK()
	case interface{ NetConn() net.Conn }: // TLS
		s.conn, s.socket = park.Wrap(conn), nowait.Of(c.NetConn())
	default:
		s.conn = park.Wrap(conn)
	}
	s.turnFn = s.turn
	return s
}

// send implements sink.
func (s *stream) send(topic int, e *event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.poll != nil {
		if !s.last {
			s.finishPoll(topic, e)
		}
		return
	}
	told := s.missed == nil || s.tellMissed() // before s.at has the event's sequence
	if e.at.seq > 0 {
		s.at[topic] = e.at.seq
	}
	if !told {
		s.drop(topic, e.alone())
		return
	}
	if len(s.at) < 2 || e.at.seq == 0 {
		if !s.write(e.bytes(s.form)) {
			s.drop(topic, e.alone())
		}
		return
	}
	b := blocks.Get().(*[]byte)
	if !s.write(s.withID(b, e)) {
		s.drop(topic, e.alone())
	}
	if s.queue == nil {
		blocks.Put(b)
	}
}

func appendGap(b []byte, g gap) []byte { return appendSSE(b, "gap", string(encode(g))) }

// gap implements sink.
func (s *stream) gap(topic int, reason string, missed span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := gap{reason, []miss{s.missOf(topic, missed)}}
	if s.poll != nil {
		if !s.last {
			s.poll.wants[topic].after.seq = missed.through
			s.poll.gap = &g
			s.finishPoll(0, nil)
		}
		return
	}
	s.at[topic] = max(s.at[topic], missed.through)
	if !s.write(s.withGap(g)) {
		s.drop(topic, missed)
	}
}

// drop notes that a client was not told of a span, if it stays. The caller holds s.mu.
func (s *stream) drop(topic int, missed span) {
	if !s.ended && !s.last {
		s.missed.add(topic, missed)
	}
}

// tellMissed tells the client which events were dropped. It reports whether there was room for
// that. The caller holds s.mu.
func (s *stream) tellMissed() bool {
	told := s.write(s.withGap(s.missed.gap(&s.subscriber)))
	if told {
		s.missed = nil
	}
	return told
}

// write writes what the system takes of b, and queues the rest. It reports whether b was taken. The caller holds s.mu.
func (s *stream) write(b []byte) bool {
	if s.ended || s.last {
		return false
	}
	if q := s.queue; q != nil {
		if most := s.g.config.MaxQueued; most > 0 && q.size+len(b)+(len(q.blocks)+1)*blockCost > most {
			s.overflow()
			return false
		}
		q.blocks = append(q.blocks, b)
		q.size += len(b)
		s.g.hub.count.queued.Add(int64(len(b)))
		return true
	}
	n, err := s.try(b)
	if err != nil {
		s.abort()
		return false
	}
	if n > 0 {
		s.wrote = s.g.now()
	}
	if n < len(b) {
		s.queue = &queue{blocks: [][]byte{b[n:]}, size: len(b) - n, since: s.g.now()}
		s.g.hub.count.queued.Add(int64(len(b) - n))
		s.wake()
	}
	return true
}

// overflow applies Config.SlowPolicy to a client whose queue is full. The caller holds s.mu.
func (s *stream) overflow() {
	if s.g.config.SlowPolicy == SlowDrop {
		s.g.hub.count.dropped.Add(1)
		return
	}
	s.tooSlow()
}

func (s *stream) tooSlow() {
	if s.abort() {
		s.g.hub.count.slow.Add(1)
	}
}

// chunk is the number of bytes that are written at once over TLS. A socket that can be written to takes as many.
const chunk = 16 << 10

// try writes what the system takes, which may be nothing. The caller holds s.mu.
func (s *stream) try(b []byte) (n int, err error) {
	if s.plain {
		return s.socket.Write(b)
	}
	for n < len(b) && err == nil && s.socket.OK() && s.socket.Writable() {
		s.setWriteDeadline()
		var m int
		m, err = s.conn.Write(b[n:min(n+chunk, len(b))])
		n += m
	}
	return n, err
}

func (s *stream) setWriteDeadline() {
	if d := s.g.config.WriteTimeout; d > 0 {
		s.conn.SetWriteDeadline(time.Now().Add(d))
	}
}

// passed reports whether a timeout that begins at from has passed. A negative one is none.
func (s *stream) passed(from, timeout time.Duration) bool {
	return timeout > 0 && s.g.now() >= durations.Add(from, timeout)
}

// advance removes n bytes that were written. The caller holds s.mu.
func (s *stream) advance(n int) {
	q := s.queue
	if n == 0 || q == nil {
		return
	}
	s.g.hub.count.queued.Add(int64(-n))
	q.size -= n
	q.since = s.g.now()
	s.wrote = q.since
	for n > 0 && n >= len(q.blocks[0]) {
		n -= len(q.blocks[0])
		q.blocks[0] = nil
		q.blocks = q.blocks[1:]
	}
	if n > 0 {
		q.blocks[0] = q.blocks[0][n:]
	}
	if q.size == 0 {
		s.queue = nil
	}
}

// wake makes turn run, unless it runs. The caller holds s.mu.
func (s *stream) wake() {
	if !s.running {
		s.g.lot.Wake(s.conn)
	}
}

// abort closes the connection. turn notices it and ends the stream. It reports whether the stream was open. The caller holds
// s.mu.
func (s *stream) abort() bool {
	if s.ended {
		return false
	}
	s.ended = true
	if q := s.queue; q != nil {
		s.g.hub.count.queued.Add(int64(-q.size))
		s.queue = nil
	}
	s.wake()
	return true
}

// end implements sink.
func (s *stream) end(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended || s.last:
	case s.poll != nil:
		s.finishPoll(0, nil)
	case errors.Is(reason, errDrain):
		s.write(retryBlock(s.g.config.Retry))
		s.last = true
		s.wake()
	default:
		s.abort()
	}
}

// flush implements sink. It is called before the connection is parked, by the goroutine that serves the request, and waits
// until the client has taken everything.
func (s *stream) flush(context.Context) error {
	for {
		s.mu.Lock()
		if s.ended {
			s.mu.Unlock()
			return net.ErrClosed
		}
		if s.queue == nil {
			s.mu.Unlock()
			return nil
		}
		b := s.queue.blocks[0]
		s.mu.Unlock()
		s.setWriteDeadline()
		n, err := s.conn.Write(b)
		s.conn.SetWriteDeadline(time.Time{})
		s.mu.Lock()
		s.advance(n)
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// turn is the connection's function: it writes what is queued, notices a peer that has gone, sends a heartbeat if one is
// due, and parks the connection again.
func (s *stream) turn(net.Conn) {
	s.mu.Lock()
	s.running = true
	s.mu.Unlock()
	if !s.work() || !s.park() {
		s.finish()
	}
	// If it was parked, another worker may have its next turn already.
}

// work does what there is to do. It reports whether the stream goes on.
func (s *stream) work() bool {
	if err := s.read(); err != nil {
		return false
	}
	if !s.socket.OK() {
		if s.flush(s.g.hub.ctx) != nil {
			return false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.queue != nil {
		b := s.queue.blocks[0]
		n, err := s.try(b)
		if err != nil {
			return false
		}
		s.advance(n)
		if n < len(b) {
			break
		}
	}
	switch {
	case s.ended, s.last && s.queue == nil:
		return false
	case s.queue != nil && s.passed(s.queue.since, s.g.config.WriteTimeout):
		s.g.hub.count.slow.Add(1)
		return false
	case s.last, s.queue != nil, !s.passed(s.wrote, s.g.config.Heartbeat):
	case s.poll != nil:
		s.finishPoll(0, nil)
	case s.missed != nil:
		s.tellMissed()
	case s.at != nil && s.catchUp(): // so that a client whose topics are quiet does not come back with an id that is too old
		s.write(append(s.appendID(nil), '\n'))
	default:
		s.write(heartbeat)
	}
	return !s.ended && !(s.last && s.queue == nil)
}

var heartbeat = []byte(":\n\n")

// read notices the end of the connection. What a client sends is discarded, up to maxHead.
func (s *stream) read() error {
	var buf [512]byte
	for {
		var n int
		var err error
		if s.plain {
			n, err = s.socket.Read(buf[:])
			if errors.Is(err, os.ErrDeadlineExceeded) { // of the lot's: a timeout has passed
				s.conn.SetReadDeadline(time.Time{})
				n, err = s.socket.Read(buf[:])
			}
		} else {
			s.conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			n, err = s.conn.Read(buf[:])
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = nil
			}
		}
		if s.strays += uint16(n); s.strays > maxHead {
			return io.ErrShortBuffer
		}
		if err != nil || n == 0 {
			return err
		}
	}
}

// park parks the connection until there is something to do. It reports whether that succeeded; the stream then belongs to
// the next turn, which may have begun.
func (s *stream) park() bool {
	s.mu.Lock()
	from, timeout := s.wrote, s.g.config.Heartbeat
	writable := s.queue != nil
	if writable {
		from, timeout = s.queue.since, s.g.config.WriteTimeout
	}
	last := s.last
	s.running = false
	s.mu.Unlock()
	options := park.Options{IdleTimeout: -1, Writable: writable}
	if timeout > 0 {
		options.IdleTimeout = max(durations.Add(from, timeout)-s.g.now(), time.Millisecond)
	}
	err := s.g.lot.ParkWith(s.conn, options, s.turnFn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.running = true
		return false
	}
	// What has changed since the lock was released found the stream neither running nor parked.
	if s.ended || s.queue != nil && !writable || s.last && !last {
		s.g.lot.Wake(s.conn)
	}
	return true
}

// finish closes the connection and leaves the hub. It is called once, by the goroutine that runs the function.
func (s *stream) finish() {
	s.mu.Lock()
	s.running = true
	s.abort()
	s.mu.Unlock()
	s.g.hub.leave(&s.subscriber)
	s.conn.Close()
	s.g.hub.count.clients.Add(-1)
}

// retryBlock tells an EventSource when to connect again: after half to one and a half of the time, so that the clients of a
// node that ends do not come back at once. A negative time says nothing.
func retryBlock(d time.Duration) []byte {
	if d < 0 {
		return nil
	}
	ms := d.Milliseconds()
	b := strconv.AppendInt([]byte("retry: "), ms/2+rand.Int64N(ms+1), 10)
	return append(b, "\n\n"...)
}
