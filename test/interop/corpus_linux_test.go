package interop

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/httpcorpus"
	"github.com/socknotify/socknotify/park"
)

var everyByte = flag.Bool("every-byte", false, "pause between any two bytes of each request of the corpus, not only at some places")

// Each request of the corpus is answered with the same bytes by net/http and by an HTTPServer, plain and with TLS, without a
// wrapper and through each one, also if the client pauses between any two bytes. At a pause the server has read all bytes.
// Where no request has begun, which net/http decides by its fourth byte, the connection is parked again.
func TestCorpus(t *testing.T) {
	for i, w := range append(wrappers, wrapper{name: "no wrapper", wrap: unwrapped}) {
		for j, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", w.name, secure), func(t *testing.T) {
				t.Parallel()
				requests := httpcorpus.Requests()
				var lanes sync.WaitGroup
				var parks atomic.Int64
				const n = 4
				for lane := range n {
					stock := newCorpusServer(t, w, secure, false, httpcorpus.Handler())
					ours := newCorpusServer(t, w, secure, true, httpcorpus.Handler())
					lanes.Go(func() {
						for k := lane; k < len(requests); k += n {
							parked, ok := compare(t, stock, ours, requests[k], uint64(i<<20|j<<16|k))
							if !ok {
								return
							}
							parks.Add(parked)
						}
					})
				}
				lanes.Wait()
				if parks.Load() < int64(len(requests)) {
					t.Errorf("parked %d times in the pauses of %d requests", parks.Load(), len(requests))
				}
				t.Logf("%d requests, parked %d times in pauses", len(requests), parks.Load())
			})
		}
	}
}

// Each request of the corpus gets the same bytes if it waits before it is answered.
func TestSuspendCorpus(t *testing.T) {
	for i, w := range append(wrappers, wrapper{name: "no wrapper", wrap: unwrapped}) {
		for j, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", w.name, secure), func(t *testing.T) {
				t.Parallel()
				requests := httpcorpus.Requests()
				var lanes sync.WaitGroup
				var waits atomic.Int64
				const n = 4
				for lane := range n {
					stock := newCorpusServer(t, w, secure, false, httpcorpus.ReadingFirst(httpcorpus.Handler()))
					var ours *corpusServer
					ours = newCorpusServer(t, w, secure, true, suspending(httpcorpus.Handler(), func(r *http.Request) {
						waits.Add(1)
						if n := ours.park.Stats(); n.Suspended != 1 || n.Blocked > 0 && r.ProtoMajor == 1 {
							t.Errorf("%s: %d wait, %d of them with a goroutine", r.Method, n.Suspended, n.Blocked)
						}
					}))
					lanes.Go(func() {
						for k := lane; k < len(requests); k += n {
							if _, ok := compare(t, stock, ours, requests[k], uint64(i<<20|j<<16|k)); !ok {
								return
							}
						}
					})
				}
				lanes.Wait()
				t.Logf("%d requests waited", waits.Load())
				if waits.Load() < int64(len(requests)) {
					t.Errorf("%d requests waited", waits.Load())
				}
			})
		}
	}
}

// suspending returns a handler whose requests wait, and are then answered by h.
func suspending(h http.Handler, waits func(*http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		register := func(q *park.Suspended) {
			waits(r)
			go func() {
				await.UpTo(time.Millisecond)
				q.Resume()
			}()
		}
		o := park.SuspendOptions{HalfClose: rand.IntN(2) == 0}
		then := func(w http.ResponseWriter, r *http.Request, _ *park.Suspended) { h.ServeHTTP(w, r) }
		if err := park.SuspendWith(w, r, o, register, then); err != nil { // its body cannot be read
			http.Error(w, errors.Unwrap(err).Error(), http.StatusBadRequest)
		}
	})
}

// compare sends a request to both servers, in pieces, and compares the answers. It returns how often
// the connection to ours was parked.
func compare(t *testing.T, stock, ours *corpusServer, r httpcorpus.Request, seed uint64) (parked int64, ok bool) {
	cuts := places(r, seed)
	want, _, err := stock.run(r, cuts)
	if err != nil {
		t.Errorf("%s: net/http: %v", r.Name, err)
		return 0, false
	}
	got, parked, err := ours.run(r, cuts)
	if err != nil {
		t.Errorf("%s, cut at %v: %v", r.Name, cuts, err)
		return 0, false
	}
	if got != want {
		t.Errorf("%s, cut at %v: %s", r.Name, cuts, httpcorpus.Diff(got, want))
	}
	return parked, true
}

// places returns where the client pauses in the text of a request: at one place at which it has begun for the client and not
// yet for the server, at the end of the first of several requests, and at two others.
func places(r httpcorpus.Request, seed uint64) []int {
	random := rand.New(rand.NewPCG(seed, 0))
	n := len(r.Text)
	var cuts []int
	if *everyByte && n < 1000 {
		for i := 1; i < n; i++ {
			cuts = append(cuts, i)
		}
		return cuts
	}
	cuts = []int{1 + random.IntN(3)}
	for i := 4; i < n; i++ {
		if waits(r, i) {
			cuts = append(cuts, i)
			break
		}
	}
	for range 2 {
		cuts = append(cuts, 1+random.IntN(n))
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	return slices.DeleteFunc(cuts, func(i int) bool { return i >= n })
}

// waits reports whether a server that has received the first n bytes parks the connection: they are whole requests, or less
// than four bytes. After a whole request less than four bytes are not enough, for net/http may have read them with it.
func waits(r httpcorpus.Request, n int) bool {
	if n < 4 {
		return true
	}
	if r.Hijacks {
		return false
	}
	in := bufio.NewReader(strings.NewReader(r.Text[:n]))
	for {
		if _, err := in.Peek(1); err != nil {
			return true
		}
		q, err := http.ReadRequest(in)
		if err == nil {
			_, err = io.Copy(io.Discard, q.Body)
		}
		if err != nil {
			return false
		}
	}
}

// A corpusServer serves one connection after the other.
type corpusServer struct {
	address  net.Addr
	header   string // what a client sends first
	secure   bool
	accepted chan *net.TCPConn
	park     *park.HTTPServer // nil for net/http, as lot
	lot      *park.Lot
}

// A handingListener hands each connection that it accepts to the client as well.
type handingListener struct {
	net.Listener
	accepted chan *net.TCPConn
}

func (l handingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.accepted <- conn.(*net.TCPConn)
	}
	return conn, err
}

func newCorpusServer(t *testing.T, w wrapper, secure, ours bool, h http.Handler) *corpusServer {
	t.Helper()
	ln := listen(t)
	s := &corpusServer{address: ln.Addr(), header: w.header, secure: secure, accepted: make(chan *net.TCPConn, 1)}
	srv := &http.Server{Handler: h, ConnContext: httpcorpus.ConnContext, ErrorLog: log.New(io.Discard, "", 0)}
	serve, serveTLS, end := srv.Serve, srv.ServeTLS, srv.Close
	if ours {
		lots := make(chan *park.Lot, 1)
		p := &park.HTTPServer{Server: srv, Linger: -1, OnLot: func(l *park.Lot) { lots <- l }}
		serve, serveTLS, end = p.Serve, p.ServeTLS, p.Close
		s.park = p
		defer func() { s.lot = <-lots }()
	}
	wrapped := w.wrap(t, handingListener{ln, s.accepted})
	served := make(chan error, 1)
	go func() {
		if secure {
			srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate()}}
			served <- serveTLS(wrapped, "", "")
		} else {
			served <- serve(wrapped)
		}
	}()
	t.Cleanup(func() {
		end()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return s
}

// certificate returns a certificate for all tests.
var certificate = sync.OnceValue(func() tls.Certificate {
	c, _, err := selfcert.New(24*time.Hour, "127.0.0.1")
	if err != nil {
		panic(err)
	}
	return c
})

// A corpusClient is the client's end of one connection.
type corpusClient struct {
	server *corpusServer
	raw    *sentConn
	conn   net.Conn
	peer   *net.TCPConn // the server's end

	mu    sync.Mutex
	got   bytes.Buffer
	ended chan struct{} // closed when the server has closed the connection
}

// A sentConn counts the bytes that it has sent.
type sentConn struct {
	*net.TCPConn
	sent atomic.Uint64
}

func (c *sentConn) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	c.sent.Add(uint64(n))
	return n, err
}

// run sends one request, and after its answer and a pause the request r in pieces that end at cuts. It returns what the
// server has answered to r, and how often the connection was parked in the pauses after the first.
func (s *corpusServer) run(r httpcorpus.Request, cuts []int) (answer string, parked int64, err error) {
	conn, err := net.Dial("tcp", s.address.String())
	if err != nil {
		return "", 0, err
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * timeout))
	c := &corpusClient{server: s, raw: &sentConn{TCPConn: conn.(*net.TCPConn)}, peer: <-s.accepted, ended: make(chan struct{})}
	c.conn = c.raw
	io.WriteString(c.conn, s.header)
	if s.secure {
		// Without X25519MLKEM768, which costs more than all the rest.
		c.conn = tls.Client(c.raw, &tls.Config{InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519}})
	}
	if _, err := io.WriteString(c.conn, httpcorpus.Hello); err != nil {
		return "", 0, err
	}
	reading.Go(c.read)
	if err := c.wait(func() bool { return strings.HasSuffix(c.text(), httpcorpus.HelloEnd) }); err != nil {
		return "", 0, fmt.Errorf("the first request: %w", err)
	}
	var before park.Stats
	if s.lot != nil {
		if err := c.wait(func() bool { n := s.lot.Stats(); return n.Parked == 1 && n.Running == 0 }); err != nil {
			return "", 0, fmt.Errorf("parking: %w, %+v", err, s.lot.Stats())
		}
		before = s.lot.Stats()
	}
	c.mu.Lock()
	c.got.Reset()
	c.mu.Unlock()
	at := 0
	for _, cut := range cuts {
		if _, err := io.WriteString(c.conn, r.Text[at:cut]); err != nil {
			break // the server has closed the connection, and c.read has what it has sent
		}
		at = cut
		parkedAgain := s.lot != nil && waits(r, cut)
		if parkedAgain {
			parked++
		}
		open := true
		if err := c.wait(func() bool {
			if open = c.open(); !open || !c.allRead() {
				return !open
			}
			if !parkedAgain {
				return true
			}
			n := s.lot.Stats()
			return n.Parked == 1 && n.Running == 0 && int64(n.Parks-before.Parks) >= parked
		}); err != nil {
			return "", 0, fmt.Errorf("a pause after %q: %w", r.Text[:cut], err)
		}
		if !open {
			if parkedAgain {
				parked--
			}
			break
		}
	}
	if c.open() {
		io.WriteString(c.conn, r.Text[at:])
		c.conn.(interface{ CloseWrite() error }).CloseWrite()
	}
	<-c.ended
	if s.lot != nil {
		if err := c.wait(func() bool { return s.lot.Stats().Parked == 0 }); err != nil {
			return "", 0, fmt.Errorf("the end: %w", err)
		}
	}
	return httpcorpus.MaskDates(c.text()), parked, nil
}

func (c *corpusClient) read() {
	defer close(c.ended)
	buf := make([]byte, 4096)
	for {
		n, err := c.conn.Read(buf)
		c.mu.Lock()
		c.got.Write(buf[:n])
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *corpusClient) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got.String()
}

func (c *corpusClient) open() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// allRead reports whether the server has received and read all that the client has sent.
func (c *corpusClient) allRead() (all bool) {
	raw, err := c.peer.SyscallConn()
	if err != nil {
		return false
	}
	raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil || info.Bytes_received < c.raw.sent.Load() {
			return
		}
		left, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		all = err == nil && left == 0
	})
	return all
}

var errTimeout = errors.New("timed out")

func (c *corpusClient) wait(holds func() bool) error {
	pause := 10 * time.Microsecond
	for end := time.Now().Add(timeout); !holds(); time.Sleep(pause) { // the caller adds what it was at
		if time.Now().After(end) {
			return fmt.Errorf("%w, answer %q", errTimeout, c.text())
		}
		pause = min(2*pause, time.Millisecond)
	}
	return nil
}
