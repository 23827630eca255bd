package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/wine"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

var (
	seed  = flag.Uint64("server.seed", 0, "the first seed of TestRandom")
	seeds = flag.Int("server.seeds", 0, "how many seeds TestRandom tries; 0 is 4, or 1 with -short")
	span  = flag.Duration("server.for", 0, "TestRandom tries seeds for so long instead")
)

// A client sends a header about itself and then its stream. Both come back.
const (
	kindIdle  = 1 << iota // ends by sending nothing: the server is to close
	kindStuck             // reads nothing while it sends: the server closes if that is too much
	kindRude              // closes without reading
	kindReset             // closes by a reset
	kindSlow              // reads slowly
	kindTiny              // sends slowly, in pieces
	kinds     = iota
	kindOver  = kindIdle | kindStuck | kindRude | kindReset // may lose something
	headLen   = 9
	shortTime = 60 * time.Millisecond
)

// A random is the run of one seed.
type random struct {
	t     *testing.T
	w     *watch
	fleet fleet
	h     *handler
	mu    sync.Mutex
	next  uint64
	cut   bool        // some connections are closed from outside
	piece int         // what the server receives at a time, at most
	head  string      // comes before everything, for Server.Preamble; "" without
	dir   string      // for files
	count map[int]int // of a kind
}

// A peer is the handler's state of a connection.
type peer struct {
	rng  *rand.Rand
	head []byte
	pos  int
	ctx  context.Context // nil unless it was asked for
	rare int             // answers by timers, readers and files, which take long where pieces are small
}

func (r *random) open(c conn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	p := &peer{rng: rand.New(rand.NewPCG(r.next, 2))}
	c.Value.extra = p
	if p.rng.IntN(4) == 0 {
		p.ctx = c.Context()
	}
	if r.head != "" && c.RemoteAddr().String() != randomAddr {
		r.t.Errorf("remote address %v", c.RemoteAddr())
	}
	return nil
}

func (r *random) closed(c conn, cause error) {
	if ctx := c.Value.extra.(*peer).ctx; ctx != nil && ctx.Err() == nil {
		r.t.Error("the context is not done in Close")
	}
	if p := c.Value.extra.(*peer); cause != nil && !r.cut && len(p.head) == headLen && p.head[8]&kindOver == 0 {
		r.t.Errorf("kind %d: closed because of %v", p.head[8], cause)
	}
}

const randomAddr = "192.0.2.1:5"

// A waiting is a reader that has nothing when it is first asked.
type waiting struct {
	c     conn
	ready atomic.Bool
	b     []byte
}

func (w *waiting) Read(b []byte) (int, error) {
	if !w.ready.Load() {
		go func() {
			w.ready.Store(true)
			w.c.WantWritable()
		}()
		return 0, sock.ErrWouldBlock
	}
	if len(w.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, w.b)
	w.b = w.b[n:]
	return n, nil
}

// fileOf returns a file with some bytes, and some before and behind.
func (r *random) fileOf(b []byte) (*os.File, error) {
	f, err := os.CreateTemp(r.dir, "file")
	if err == nil {
		_, err = f.Write(slices.Concat([]byte("before"), b, []byte("behind")))
	}
	return f, err
}

// check compares the bytes that the server has received with the client's stream.
func (r *random) check(c conn, b []byte) {
	p := c.Value.extra.(*peer)
	if k := min(headLen-len(p.head), len(b)); k > 0 {
		p.head = append(p.head, b[:k]...)
		b = b[k:]
		if len(p.head) < headLen {
			return
		}
		switch kind := p.head[8]; {
		case kind&kindIdle != 0:
			c.SetIdleTimeout(shortTime)
		case kind&kindStuck != 0:
			c.SetWriteTimeout(shortTime)
		}
	}
	if !bytes.Equal(b, stream(binary.BigEndian.Uint64(p.head), p.pos, len(b))) {
		r.t.Errorf("received byte %d and what follows is wrong", p.pos)
	}
	p.pos += len(b)
}

// data echoes in one of all possible ways, chosen by the connection's random numbers.
func (r *random) data(c conn, buf []byte) error {
	p := c.Value.extra.(*peer)
	rng := p.rng
	n, err := 0, error(nil)
	if len(p.head) < headLen || rng.IntN(2) == 0 { // without the header there is no timeout for a message that stays incomplete
		n, err = c.Read(buf[:1+rng.IntN(len(buf))])
	} else if n, err = throughInput(rng, c, buf); err == io.ErrUnexpectedEOF {
		r.check(c, buf[:n])
		if _, err := c.Writev([][]byte{buf[:n/2], buf[n/2 : n]}); err != nil {
			return err
		}
		return io.EOF
	}
	if err != nil {
		if rng.IntN(2) == 0 && err.Error() == "EOF" {
			return c.CloseWrite() // which ends it as well
		}
		return err
	}
	r.check(c, buf[:n])
	how := rng.IntN(25)
	if how >= 3 && how <= 5 {
		if p.rare++; p.rare > 10 {
			how = 6
		}
	}
	switch how {
	case 3: // a timer answers
		b := bytes.Clone(buf[:n])
		c.Pause()
		other := c.AfterFunc(time.Hour, func(conn) error { return errors.New("a stopped timer was called") })
		c.AfterFunc(time.Duration(rng.IntN(20))*time.Millisecond, func(c conn) error {
			defer r.h.enter(c)()
			other.Stop()
			_, err := c.Write(b)
			c.Resume()
			return err
		})
		return nil
	case 4: // in several parts, one by a reader
		k := n / 3
		if _, err := c.Write(buf[:k]); err != nil {
			return err
		}
		if err := c.Stream(&waiting{c: c, b: bytes.Clone(buf[k : 2*k])}); err != nil {
			return err
		}
		_, err := c.Write(buf[2*k : n])
		return err
	case 5: // and one by a file
		k := n / 2
		f, err := r.fileOf(buf[k:n])
		if err != nil {
			return err
		}
		if _, err := c.Writev([][]byte{buf[:k/2], buf[k/2 : k]}); err != nil {
			f.Close()
			return err
		}
		return c.SendFile(f, int64(len("before")), int64(n-k))
	case 0:
		b := bytes.Clone(buf[:n])
		c.Pause()
		go func() {
			c.Write(b)
			c.Resume()
		}()
		return nil
	case 1:
		if _, err := c.Write(buf[:n]); err != nil {
			return err
		}
		if len(p.head) < headLen || p.head[8]&kindStuck != 0 {
			return nil // a hijacker would wait forever
		}
		if wine.KeepsPort.Here() {
			return nil // see noHijack
		}
		nc, err := c.Hijack()
		if err != nil {
			// What was written may find that the peer has gone.
			if !r.cut && p.head[8]&kindOver == 0 || !errors.Is(err, net.ErrClosed) {
				r.t.Errorf("kind %d: Hijack = %v", p.head[8], err)
			}
			return nil
		}
		most := rng.IntN(3)
		go func() {
			b := make([]byte, 1000)
			nc.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
			for range most {
				n, err := nc.Read(b)
				if n > 0 {
					r.check(c, b[:n])
					nc.Write(b[:n])
				}
				if err != nil {
					break // its end is told again
				}
			}
			nc.SetReadDeadline(time.Time{})
			c.Resume()
		}()
		return nil
	case 2:
		for i := range n { // in pieces
			if _, err := c.Write(buf[i : i+1]); err != nil {
				return err
			}
			if i == 20 {
				_, err := c.Write(buf[i+1 : n])
				return err
			}
		}
		return nil
	}
	_, err = c.Write(buf[:n])
	return err
}

// throughInput receives a message of random length by the input, in one call or in two. At the end of the stream it
// returns what is left.
func throughInput(rng *rand.Rand, c conn, buf []byte) (n int, err error) {
	k, first := 1+rng.IntN(min(300, len(buf))), 0
	if rng.IntN(2) == 0 {
		c.Mark()
		first = k / 2
	}
	a, err := c.Next(first)
	var b []byte
	if err == nil {
		b, err = c.Next(k - first)
	}
	if err == io.ErrUnexpectedEOF {
		var e error
		if b, e = c.Next(c.Buffered()); e != nil {
			return 0, e
		}
	}
	n = copy(buf, a)
	return n + copy(buf[n:], b), err
}

// Random clients of random servers: every byte comes back, in order, unless one side has cut the connection.
func TestRandom(t *testing.T) {
	if *seeds == 0 {
		*seeds = long.Or(4, 1)
	}
	backendtest.Each(t, func(t *testing.T, backend string) {
		end := time.Now().Add(*span)
		for i := 0; i < *seeds && *span == 0 || time.Now().Before(end); i++ {
			s := *seed + uint64(i)
			if !t.Run(fmt.Sprint("seed=", s), func(t *testing.T) { randomly(t, backend, s) }) {
				break
			}
			if *span > 0 {
				t.Log(s)
			}
		}
	})
}

func randomly(t *testing.T, backend string, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	r := &random{t: t, h: &handler{t: t}, count: make(map[int]int), next: seed << 16, cut: rng.IntN(3) == 0}
	r.h.data, r.h.open, r.h.closed = r.data, r.open, r.closed
	r.dir = t.TempDir()
	config, client := certified(t)
	s := &srv{Handler: r.h, Backend: backend, Workers: 1 + rng.IntN(4), Shards: rng.IntN(3), TLSConfig: config, MaxHandshakes: 50 + rng.IntN(10),
		BufferSize: fewer() + rng.IntN(1<<uint(rng.IntN(17))), MaxQueued: 1500 + 2*fewer() + rng.IntN(1<<uint(1+rng.IntN(17))), // 21 writes add as many TLS records
		HandshakeTimeout: time.Hour} // the watch is quicker; with fewer slots than clients some would be ended for others
	if rng.IntN(3) == 0 {
		s.Preamble, r.head = fromLine, "FROM "+randomAddr+"\n"
	}
	if rng.IntN(3) == 0 {
		s.ReadRate, s.WriteRate = server.Rate{PerSecond: 20 << 20, Burst: 10_000 + rng.IntN(1<<20)}, server.Rate{PerSecond: 30 << 20, Burst: 1 << 20}
	}
	t.Logf("header %q, rates %v and %v", r.head, s.ReadRate, s.WriteRate)
	t.Logf("workers %d, shards %d, buffer %d, queue %d, cut %v", s.Workers, s.Shards, s.BufferSize, s.MaxQueued, r.cut)
	r.piece = max(min(s.BufferSize, s.MaxQueued/2), 1)
	r.w = newWatch(t, func() string { return r.fleet.String() + server.Describe(s) })
	var to []target
	for _, l := range []target{{"tcp", "127.0.0.1:0", false}, {"tcp6", "[::1]:0", false}, {"unix", "", false},
		{"tcp", "127.0.0.1:0", true}, {"tcp6", "[::1]:0", true}, {"unix", "", true}} {
		if l.network == "unix" {
			l.addr = socketPath(t)
		}
		ln, err := net.Listen(l.network, l.addr)
		if err != nil {
			if l.network != "tcp" {
				continue // not everywhere
			}
			t.Fatal(err)
		}
		l.addr = ln.Addr().String()
		if to = append(to, l); l.tls {
			served(t, s, func() error { return s.ServeTLS(ln, "", "") })
		} else {
			serve(t, s, ln)
		}
	}
	const clients = 30
	var wg sync.WaitGroup
	var dialed int
	for i := range uint64(clients) {
		rng := rand.New(rand.NewPCG(rng.Uint64(), 3))
		wg.Go(func() {
			id := seed<<16 + i
			m, c := r.dial(rng, id, to[rng.IntN(len(to))], client)
			if c == nil {
				return
			}
			r.mu.Lock()
			dialed++
			r.mu.Unlock()
			defer m.at(over)
			defer c.Close()
			r.client(rng, id, m, c)
		})
	}
	if r.cut {
		for range 5 {
			r.mu.Lock()
			k := 1 + rng.IntN(clients)
			abort := rng.IntN(2) == 0
			r.mu.Unlock()
			r.h.mu.Lock()
			var c conn
			if k <= len(r.h.conns) {
				c = r.h.conns[k-1]
			}
			r.h.mu.Unlock()
			switch {
			case c == nil:
				await.Pause(time.Millisecond)
			case abort:
				c.Abort()
			default:
				c.Close()
			}
		}
	}
	wg.Wait()
	r.w.until(func() bool { return s.Stats().Conns == 0 })
	r.w.stop()
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	// A client that is soon gone may take its end of the handshake along, which only the server needs.
	st, gone := s.Stats(), r.count[kindRude]+r.count[kindReset]
	unfinished := int(failed(st))
	if r.h.opens != r.h.closes || r.h.opens+unfinished < dialed || r.h.opens > clients {
		t.Errorf("%d opens, %d closes, %d clients", r.h.opens, r.h.closes, dialed)
	}
	if st.Panics+st.Refused+st.Overloads != 0 || st.QueuedBytes != 0 || !r.cut && unfinished > gone ||
		int(st.TimedOut.Idle) > r.count[kindIdle] || int(st.TimedOut.Slow) > r.count[kindStuck] {
		t.Errorf("%+v", st)
	}
}

// A target is an address that clients connect to.
type target struct {
	network, addr string
	tls           bool
}

// dial connects, and returns the connection below TLS and the one above it, which are the same without TLS.
func (r *random) dial(rng *rand.Rand, id uint64, to target, config *tls.Config) (*moving, net.Conn) {
	m, err := r.w.dial(id, to)
	if err != nil {
		if !r.cut { // so early that it never saw the connection
			r.t.Error(err)
		}
		return nil, nil
	}
	r.fleet.add(m)
	for head := r.head; head != ""; {
		k := 1 + rng.IntN(len(head))
		m.Write([]byte(head[:k])) // if it fails, so does what follows
		head = head[k:]
	}
	if !to.tls {
		return m, m
	}
	m.at("handshake")
	config = config.Clone()
	config.MaxVersion = tls.VersionTLS12 + uint16(rng.IntN(2))
	tc := tls.Client(m, config)
	if err := tc.Handshake(); err != nil {
		m.Close()
		m.at(over)
		if !r.cut {
			r.t.Error(err)
		}
		return nil, nil
	}
	return m, tc
}

// client sends and receives at random, and checks that the bytes it has sent come back.
func (r *random) client(rng *rand.Rand, id uint64, m *moving, c net.Conn) {
	kind := 0
	if rng.IntN(2) == 0 {
		kind = 1 << rng.IntN(kinds)
	}
	r.mu.Lock()
	r.count[kind]++
	r.mu.Unlock()
	sent := append(binary.BigEndian.AppendUint64(nil, id), byte(kind))
	sent = append(sent, stream(id, 0, min(rng.IntN(1<<uint(rng.IntN(19))), r.piece*20_000/fewer()))...)
	if kind == kindStuck && r.piece > 500 { // or the server is slower than the client
		sent = append(sent, stream(id, len(sent)-headLen, 4<<20)...)
	}
	if kind == kindTiny {
		sent = sent[:min(len(sent), 500)]
	}
	pieces := rand.New(rand.NewPCG(rng.Uint64(), 4))
	done := make(chan struct{})
	go func() {
		defer close(done)
		pour(kind, pieces, c, sent)
	}()
	m.at(fmt.Sprintf("kind %d, %d bytes", kind, len(sent)))
	if kind == kindStuck {
		<-done
	}
	got, buf := 0, make([]byte, 4096)
	for {
		if kind == kindSlow {
			await.Pause(time.Duration(rng.IntN(200)) * time.Microsecond)
		}
		n, err := c.Read(buf)
		if got+n > len(sent) || !bytes.Equal(buf[:n], sent[got:got+n]) {
			r.t.Errorf("client %x: byte %d and what follows is wrong", id, got)
			break
		}
		if got += n; err != nil {
			if got < len(sent) && kind&kindOver == 0 && !r.cut {
				r.t.Errorf("client %x, kind %d: %d of %d bytes came back, %v", id, kind, got, len(sent), err)
			}
			break
		}
	}
	<-done
}

func pour(kind int, rng *rand.Rand, c net.Conn, sent []byte) {
	most := 17
	if kind == kindTiny {
		most = 6
	}
	for rest := sent; len(rest) > 0; {
		k := min(len(rest), 1+rng.IntN(1<<uint(rng.IntN(most))))
		if _, err := c.Write(rest[:k]); err != nil {
			return
		}
		rest = rest[k:]
		if kind == kindTiny {
			await.Pause(time.Duration(rng.IntN(1000)) * time.Microsecond)
		}
	}
	switch kind {
	case kindIdle:
		return
	case kindReset:
		below := c
		if tc, ok := c.(*tls.Conn); ok {
			below = tc.NetConn()
		}
		if tc, ok := below.(*moving).Conn.(*net.TCPConn); ok {
			tc.SetLinger(0)
		}
		below.Close()
	case kindRude:
		c.Close()
	default:
		c.(interface{ CloseWrite() error }).CloseWrite()
	}
}
