package park

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/durationtest"
	"github.com/socknotify/socknotify/internal/test/testclock"
	"github.com/socknotify/socknotify/internal/test/words"
)

// quietLogger is for streams whose kinds are logged as ones that cannot be parked.
var quietLogger = slog.New(slog.DiscardHandler)

// newStreams completes g, and verifies at the end of the test that nothing is left behind.
func newStreams(t testing.TB, g *Streams) (*Streams, chan error) {
	t.Helper()
	closed := make(chan error, 100)
	if g.OnClose == nil {
		g.OnClose = func(_ *Stream, err error) { closed <- err }
	}
	if g.Logger == nil {
		g.Logger = quietLogger
	}
	t.Cleanup(func() {
		g.Close()
		must(t, g.Shutdown(context.Background()))
		if g.Lot != nil { // Shutdown waits for OnClose, not for the function that has called it
			waitFor(t, "no function runs", func() bool { return g.Stats().Running == 0 })
		}
		if s := g.Stats(); s.Conns != 0 || s.QueuedBytes != 0 || s.Parked != 0 || s.Running != 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
	return g, closed
}

// streamKinds makes pairs of connections of which the first one becomes a stream.
var streamKinds = map[string]func(testing.TB) (server, client net.Conn){
	"TCP":                          func(t testing.TB) (server, client net.Conn) { return pair(t, "tcp") },
	"Unix":                         func(t testing.TB) (server, client net.Conn) { return pair(t, "unix") },
	"TLS":                          tlsKind{version: tls.VersionTLS13}.streams,
	"crypto/tls":                   tlsKind{tls.VersionTLS13, true}.streams,
	"TLS without handshake":        tlsKind{version: tls.VersionTLS13}.fresh,
	"crypto/tls without handshake": tlsKind{tls.VersionTLS13, true}.fresh,
	"wrapper": func(t testing.TB) (server, client net.Conn) {
		a, b := pair(t, "tcp")
		return buffered(a), b
	},
	"header": func(t testing.TB) (server, client net.Conn) {
		a, b := pair(t, "tcp")
		send(t, b, "header\n")
		return newHeaderConn(a), b
	},
	"opaque": func(t testing.TB) (server, client net.Conn) {
		a, b := pair(t, "tcp")
		return opaqueConn{a}, b
	},
	"unfit": func(t testing.TB) (server, client net.Conn) {
		a, b := pair(t, "tcp")
		return &unfitConn{a}, b
	},
}

func (k tlsKind) streams(t testing.TB) (server, client net.Conn) {
	s, c, _ := k.pair(t)
	return s, c
}

func (k tlsKind) fresh(t testing.TB) (server, client net.Conn) {
	a, b := pair(t, "tcp")
	return k.server(t, a), tls.Client(b, &tls.Config{InsecureSkipVerify: true})
}

func eachStream(t *testing.T, test func(t *testing.T, pair func(testing.TB) (server, client net.Conn))) {
	for name, pair := range streamKinds {
		t.Run(name, func(t *testing.T) { test(t, pair) })
	}
}

// start starts a stream.
func (g *Streams) start(t testing.TB, conn net.Conn) *Stream {
	t.Helper()
	s := new(Stream)
	must(t, g.Open(s, conn))
	must(t, s.Start(nil, nil))
	return s
}

// wantRest reads until the end of a stream.
func wantRest(t testing.TB, conn net.Conn, want string) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(timeout))
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != want {
		t.Fatalf("%d bytes %.50q and %v, want %d bytes", len(got), got, err, len(want))
	}
}

// small makes the system queue little for a peer that does not read.
func small(t testing.TB, conns ...net.Conn) {
	t.Helper()
	for _, c := range conns {
		for {
			in, ok := c.(interface{ NetConn() net.Conn })
			if !ok {
				break
			}
			c = in.NetConn()
		}
		switch o := c.(type) {
		case opaqueConn:
			c = o.hidden
		case *headerConn:
			c = o.hidden
		case *unfitConn:
			c = o.Conn
		case *heldWriter:
			c = o.Conn
		}
		b := c.(interface {
			SetReadBuffer(int) error
			SetWriteBuffer(int) error
		})
		must(t, b.SetReadBuffer(64<<10))
		must(t, b.SetWriteBuffer(32<<10))
	}
}

// A stream answers what its peer sends, is parked between, and is written to from elsewhere while
// it is. When the peer ends its stream, the stream ends.
func TestStream(t *testing.T) {
	eachStream(t, func(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn)) {
		g, closed := newStreams(t, &Streams{TimeCalls: true, MaxQueued: -1, OnInput: func(s *Stream, b []byte) error { return s.Write(b) }})
		server, client := pair(t)
		s := new(Stream)
		s.Value = "mine"
		must(t, g.Open(s, server))
		greet, early := func(s *Stream) error { return s.Write([]byte("hello ")) }, "early "
		if s.fresh { // the lot, or the handshake, reads the first bytes
			early = ""
		}
		must(t, s.Start([]byte(early), greet))
		expect(t, client, "hello "+early)
		for i := range 20 {
			text := fmt.Sprint("message ", i)
			send(t, client, text)
			expect(t, client, text)
			must(t, s.Writev([]byte("from "), nil, []byte("elsewhere")))
			expect(t, client, "from elsewhere")
		}
		big, answer := bytes.Repeat([]byte("0123456789abcdef"), 64<<10), make([]byte, 1<<20)
		go client.Write(big)
		if _, err := io.ReadFull(client, answer); err != nil || !bytes.Equal(answer, big) {
			t.Fatalf("another answer, %v", err)
		}
		must(t, s.Flush(t.Context()))
		if s.Queued() != 0 || s.Closing() || s.Value != "mine" || s.NetConn() == nil || s.RemoteAddr() == nil {
			t.Error("the stream's methods")
		}
		if n := len(slices.Collect(g.All())); n != 1 {
			t.Errorf("%d streams", n)
		}
		client.(interface{ CloseWrite() error }).CloseWrite()
		wantErr(t, receive(t, closed), io.EOF)
		wantErr(t, s.Write(nil), ErrStreamClosed)
		wantErr(t, s.Write([]byte("x")), net.ErrClosed)
		wantErr(t, s.Flush(t.Context()), ErrStreamClosed)
		wantErr(t, s.Abort(nil), ErrStreamClosed)
		waitFor(t, "it is gone", func() bool { return g.Stats().Conns == 0 })
		if st := g.Stats(); st.Accepted != 1 || st.Calls < 20 || st.CallTime.Count() != st.Calls {
			t.Errorf("%+v", st)
		}
	})
}

// Many goroutines write while the peer reads slowly and OnInput answers: each write arrives whole,
// and those of a goroutine in their order.
func TestStreamConcurrentWrites(t *testing.T) {
	eachStream(t, func(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn)) {
		const writers, messages = 8, 60
		g, _ := newStreams(t, &Streams{MaxQueued: -1, OnInput: func(*Stream, []byte) error { return nil }})
		server, client := pair(t)
		small(t, server, client)
		s := g.start(t, server)
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for m := range messages {
					text := fmt.Appendf(nil, "%d %d %s\n", w, m, bytes.Repeat([]byte{'a' + byte(w)}, 1+m*97))
					var err error
					switch m % 3 {
					case 0:
						err = s.Write(text)
						clear(text) // it was copied
					case 1:
						err = s.WriteShared(text)
					default:
						err = s.Writev(text[:2], text[2:])
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		var next [writers]int
		in := newLines(client)
		for i := range writers * messages {
			if i%40 == 0 {
				await.Pause(2 * time.Millisecond)
				send(t, client, "x") // the function runs, too
			}
			line, err := in()
			must(t, err)
			var w, m int
			fmt.Sscanf(line, "%d %d", &w, &m)
			if want := fmt.Sprintf("%d %d %s", w, m, strings.Repeat(string(rune('a'+w)), 1+m*97)); line != want || next[w] != m {
				t.Fatalf("%.40q, want message %d of %d", line, next[w], w)
			}
			next[w]++
		}
		all.Wait()
		waitFor(t, "nothing is queued", func() bool { return g.Stats().QueuedBytes == 0 })
	})
}

// newLines returns a function that returns the next line.
func newLines(conn net.Conn) func() (string, error) {
	conn.SetReadDeadline(time.Now().Add(timeout))
	var rest []byte
	buf := make([]byte, 4<<10)
	return func() (string, error) {
		for {
			if i := bytes.IndexByte(rest, '\n'); i >= 0 {
				line := string(rest[:i])
				rest = rest[i+1:]
				return line, nil
			}
			n, err := conn.Read(buf)
			rest = append(rest, buf[:n]...)
			if err != nil {
				return "", err
			}
		}
	}
}

// A peer that does not read is closed, or loses writes, and what is queued is bounded, also in
// small blocks.
func TestStreamSlowPeer(t *testing.T) {
	eachStream(t, func(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn)) {
		for _, policy := range []SlowPolicy{0, SlowClose, SlowDrop} {
			for _, size := range []int{1, 16 << 10} {
				const most = 64 << 10
				g, closed := newStreams(t, &Streams{MaxQueued: most, SlowPolicy: policy})
				server, client := pair(t)
				small(t, server, client)
				s := g.start(t, server)
				sent, block := 0, bytes.Repeat([]byte{'x'}, 16<<10)
				for s.Queued() == 0 { // until the system takes no more
					must(t, s.Write(block))
					sent += len(block)
				}
				var err error
				for {
					if err = s.Write(block[:size]); err != nil {
						break
					}
					sent += size
				}
				s.mu.Lock()
				if q := s.queue(); q != nil { // a slice, and the least that an allocator takes
					if memory := q.size + len(q.blocks)*(24+8); memory > most+len(block) {
						t.Errorf("%d blocks of %d bytes", len(q.blocks), q.size)
					}
				}
				s.mu.Unlock()
				if policy == SlowDrop {
					wantErr(t, err, ErrQueueFull)
					must(t, s.Close(nil))
					wantRest(t, client, strings.Repeat("x", sent))
					client.Close()
					wantErr(t, receive(t, closed), ErrStreamClosed)
					if n := g.Stats(); n.Dropped != 1 || n.TimedOut.Slow != 0 {
						t.Errorf("%+v", n)
					}
					continue
				}
				wantErr(t, err, ErrSlow)
				wantErr(t, receive(t, closed), ErrSlow)
				if n := g.Stats(); n.Dropped != 0 || n.TimedOut.Slow != 1 || n.QueuedBytes != 0 {
					t.Errorf("%+v", n)
				}
			}
		}
	})
}

// Queues share what WriteShared was called with, and a stream of which only the latest counts
// queues it once.
func TestStreamQueue(t *testing.T) {
	g, _ := newStreams(t, &Streams{MaxQueued: 1})
	var streams []*Stream
	var clients []net.Conn
	shared := bytes.Repeat([]byte{'s'}, 1<<20)
	for range 3 {
		server, client := pair(t, "tcp")
		small(t, server, client)
		s := g.start(t, server)
		must(t, s.WriteShared(shared))
		streams, clients = append(streams, s), append(clients, client)
	}
	for i, s := range streams {
		wantErr(t, s.Write([]byte("y")), ErrSlow)
		clients[i].Close()
	}
	server, client := pair(t, "tcp")
	small(t, server, client)
	s := g.start(t, server)
	must(t, s.WriteShared(shared))
	s.mu.Lock()
	if b := s.queue().blocks[0]; &b[len(b)-1] != &shared[len(shared)-1] {
		t.Error("a shared block was copied")
	}
	s.mu.Unlock()
	for i := range 1000 {
		must(t, s.WriteLatest(fmt.Append(nil, "latest ", i, " ")))
	}
	must(t, s.WriteLast([]byte("last"), io.ErrNoProgress))
	wantErr(t, s.WriteLast(nil, nil), ErrStreamClosed)
	wantErr(t, s.WriteLatest(nil), ErrStreamClosed)
	must(t, s.Close(nil))
	wantRest(t, client, string(shared)+"latest 999 last")

	// An empty one changes nothing, also where the one before is all that is queued.
	server, client = pair(t, "tcp")
	small(t, server, client)
	server.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	before, _ := server.Write(shared)
	server.SetWriteDeadline(time.Time{})
	s = g.start(t, server)
	must(t, s.WriteLatest([]byte("latest")))
	must(t, s.WriteLatest(nil))
	must(t, s.Close(nil))
	wantRest(t, client, string(shared[:before])+"latest")
}

// What was queued when the stream was closed is sent before it ends, and the peer's further bytes
// are discarded. With CloseWrite they are still handled. Abort loses what is queued.
func TestStreamClose(t *testing.T) {
	eachStream(t, func(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn)) {
		own := errors.New("own")
		much := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
		got := make(chan string, 100)
		g, closed := newStreams(t, &Streams{MaxQueued: -1, OnInput: func(s *Stream, b []byte) error {
			got <- string(b)
			if string(b) == "fail" {
				s.WriteShared(much)
				return own
			}
			return nil
		}})
		for _, how := range []string{"close", "error", "close write", "abort"} {
			server, client := pair(t)
			small(t, server, client)
			s := g.start(t, server)
			send(t, client, "first")
			if b := receive(t, got); b != "first" {
				t.Fatalf("%q", b)
			}
			switch how {
			case "close":
				must(t, s.WriteShared(much))
				must(t, s.Close(own))
				wantErr(t, s.Close(nil), ErrStreamClosed)
				if halfCloser(s.NetConn()) != nil { // others may be closed before it is read, which resets them
					send(t, client, "late")
				}
				wantRest(t, client, string(much))
				client.Close()
				wantErr(t, receive(t, closed), own)
				wantEmpty(t, got)
			case "error":
				send(t, client, "fail")
				receive(t, got)
				wantRest(t, client, string(much))
				wantErr(t, receive(t, closed), own) // although the client does not end its side
			case "close write":
				must(t, s.WriteShared(much))
				if err := s.CloseWrite(); err != nil { // not every connection can
					wantErr(t, err, errors.ErrUnsupported)
					must(t, s.Abort(nil))
					receive(t, closed)
					break
				}
				wantErr(t, s.CloseWrite(), ErrStreamClosed)
				wantRest(t, client, string(much))
				send(t, client, "second")
				if b := receive(t, got); b != "second" {
					t.Fatalf("%q", b)
				}
				client.Close()
				wantErr(t, receive(t, closed), io.EOF)
			case "abort":
				must(t, s.WriteShared(much))
				must(t, s.Abort(own))
				wantErr(t, receive(t, closed), own)
			}
			client.Close()
		}
	})
}

// A peer that has ended its stream still gets what was queued for it.
func TestStreamHalfClosedPeer(t *testing.T) {
	eachStream(t, func(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn)) {
		much := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
		g, closed := newStreams(t, &Streams{MaxQueued: -1, OnInput: func(s *Stream, b []byte) error {
			return s.WriteShared(much)
		}})
		server, client := pair(t)
		small(t, server, client)
		g.start(t, server)
		send(t, client, "go")
		must(t, client.(interface{ CloseWrite() error }).CloseWrite())
		waitFor(t, "the server has it", func() bool { return g.Stats().QueuedBytes > 0 })
		wantRest(t, client, string(much))
		wantErr(t, receive(t, closed), io.EOF)
	})
}

// A peer that has ended its stream and reads nothing is closed by WriteTimeout.
func TestStreamHalfClosedPeerStops(t *testing.T) {
	eachStream(t, func(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn)) {
		much := make([]byte, 16<<20)
		g, closed := newStreams(t, &Streams{MaxQueued: -1, WriteTimeout: 100 * time.Millisecond, OnInput: func(s *Stream, b []byte) error {
			return s.WriteShared(much)
		}})
		server, client := pair(t)
		small(t, server, client)
		g.start(t, server)
		send(t, client, "go")
		must(t, client.(interface{ CloseWrite() error }).CloseWrite())
		if err := receive(t, closed); !errors.Is(err, ErrSlow) && !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		waitFor(t, "nothing is left", func() bool { st := g.Stats(); return st.Conns == 0 && st.QueuedBytes == 0 })
	})
}

// Streams without OnInput discard a little of what their peers send.
func TestStreamStrays(t *testing.T) {
	eachStream(t, func(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn)) {
		g, closed := newStreams(t, &Streams{})
		server, client := pair(t)
		s := g.start(t, server)
		send(t, client, strings.Repeat("x", maxStrays))
		must(t, s.Write([]byte("still here")))
		expect(t, client, "still here")
		wantEmpty(t, closed)
		send(t, client, "x")
		wantErr(t, receive(t, closed), ErrTooLong)
	})
}

// OnTimer runs when its time is over and after Wake, and the timeouts end streams on which nothing
// moves.
func TestStreamTimer(t *testing.T) {
	clock := testclock.Install(t)
	called := make(chan time.Duration, 100)
	g, closed := newStreams(t, &Streams{OnInput: func(*Stream, []byte) error { return nil },
		IdleTimeout: time.Hour, WriteTimeout: time.Hour,
		OnTimer: func(s *Stream) time.Duration {
			idle := s.Idle()
			called <- idle
			if idle >= time.Minute {
				s.Write([]byte("beat "))
			}
			return time.Minute
		}})
	server, client := pair(t, "tcp")
	s := g.start(t, server)
	receive(t, called)
	for range 3 {
		waitFor(t, "it is parked", func() bool { st := g.Stats(); return st.Parked == 1 && st.Running == 0 })
		clock.Advance(time.Minute - time.Second)
		wantEmpty(t, called)
		for len(called) == 0 {
			clock.Advance(time.Second)
			runtime.Gosched()
		}
		if idle := receive(t, called); idle < time.Minute {
			t.Errorf("idle for %v", idle)
		}
		expect(t, client, "beat ")
	}
	s.Wake()
	if idle := receive(t, called); idle >= time.Minute {
		t.Errorf("idle for %v", idle)
	}
	send(t, client, "x")
	receive(t, called)
	must(t, s.Close(nil))
	wantRest(t, client, "")
	client.Close()
	wantErr(t, receive(t, closed), ErrStreamClosed)
}

// Nothing moves, or nothing is taken: whether the stream is parked, or OnInput runs, or it has a
// goroutine.
func TestStreamTimeouts(t *testing.T) {
	t.Parallel() // it waits
	eachStream(t, func(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn)) {
		t.Parallel()
		const short = 100 * time.Millisecond
		g, closed := newStreams(t, &Streams{IdleTimeout: short})
		server, _ := pair(t)
		g.start(t, server)
		err := receive(t, closed)
		wantErr(t, err, ErrIdle)
		wantErr(t, err, os.ErrDeadlineExceeded)
		if n := g.Stats().TimedOut; n.Idle != 1 {
			t.Errorf("%+v", n)
		}
		for _, parked := range []bool{true, false} {
			leave := make(chan bool, 2)
			g, closed := newStreams(t, &Streams{MaxQueued: -1, WriteTimeout: short,
				OnInput: func(*Stream, []byte) error { leave <- true; leave <- true; return nil }})
			leave <- true
			server, client := pair(t)
			small(t, server, client)
			s := g.start(t, server)
			send(t, client, "x")
			waitFor(t, "OnInput runs", func() bool { return g.Stats().Calls == 1 })
			if parked {
				<-leave
			}
			waitFor(t, "it is counted", func() bool {
				if s.Queued() < 1<<20 {
					s.Write(make([]byte, 64<<10)) // until the system takes no more
				}
				return g.Stats().TimedOut.Slow == 1
			})
			if !parked {
				<-leave
			}
			wantErr(t, receive(t, closed), ErrSlow)
		}
	})
}

// A peer that connects and does not begin its handshake needs no goroutine, and has IdleTimeout;
// one that does not end it has HandshakeTimeout; one that fails is counted.
func TestStreamHandshake(t *testing.T) {
	t.Parallel() // it waits
	const short = 100 * time.Millisecond
	for name, c := range map[string]struct {
		streams *Streams
		say     string
		want    error
	}{
		"silent":  {&Streams{IdleTimeout: short}, "", ErrIdle},
		"half":    {&Streams{HandshakeTimeout: short}, "\x16\x03", ErrHandshake},
		"invalid": {&Streams{}, "GET / HTTP/1.1\r\n\r\n", tls.RecordHeaderError{}},
		"gone":    {&Streams{}, "", io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			g, closed := newStreams(t, c.streams)
			server, client := pair(t, "tcp")
			s := g.start(t, tlsKind{version: tls.VersionTLS13}.server(t, server))
			must(t, s.Write([]byte("greeting"))) // for after the handshake
			switch {
			case name == "gone":
				client.Close()
			case c.say != "":
				send(t, client, c.say)
			}
			err := receive(t, closed)
			if !errors.Is(err, c.want) && !errors.As(err, new(tls.RecordHeaderError)) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if st := g.Stats(); st.TimedOut.Handshake+st.Rejected+st.TimedOut.Idle != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// A panic and runtime.Goexit of a function end their stream alone. A panic is logged and counted.
func TestStreamPanics(t *testing.T) {
	words.Panic(t, func(value string) {
		g, closed := newStreams(t, &Streams{OnInput: func(s *Stream, b []byte) error {
			if string(b) == "exit" {
				runtime.Goexit()
			}
			panic(value)
		}})
		g.Logger = nil
		server, client := pair(t, "tcp")
		g.start(t, server)
		send(t, client, "x")
		if err := receive(t, closed); !errors.As(err, new(*PanicError)) {
			t.Errorf("%T", err)
		}
		server, client = pair(t, "tcp")
		g.start(t, server)
		send(t, client, "exit")
		wantErr(t, receive(t, closed), errGoexit)
		wantRest(t, client, "")
		if st := g.Stats(); st.Panics != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// Shutdown ends streams after what is queued, or as OnShutdown does, and waits. Close waits for
// nothing. Both refuse others.
func TestStreamsShutdown(t *testing.T) {
	wantErr(t, new(Streams).Shutdown(nil), socknotify.ErrInvalid) //lint:ignore SA1012 it is what is tested
	must(t, new(Streams).Shutdown(t.Context()))
	eachStream(t, func(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn)) {
		for _, hook := range []bool{false, true} {
			entered, leave := make(chan bool), make(chan bool)
			g, closed := newStreams(t, &Streams{OnInput: func(*Stream, []byte) error { entered <- true; <-leave; return nil }})
			if hook {
				g.OnShutdown = func(s *Stream) {
					s.WriteLast([]byte("bye"), ErrServerClosed)
					s.Close(nil)
				}
			}
			want := map[bool]string{true: "bye"}[hook]
			server, client := pair(t)
			g.start(t, server)
			send(t, client, "x")
			<-entered
			opened := new(Stream)
			late, lateClient := pair(t)
			must(t, g.Open(opened, late))
			done := make(chan error)
			go func() { done <- g.Shutdown(t.Context()) }()
			waitFor(t, "Shutdown has begun", g.ending.HasBegun)
			wantErr(t, g.Open(new(Stream), server), ErrServerClosed)
			must(t, opened.Start(nil, nil))
			go func() { // one whose handshake is refused may be reset
				io.Copy(io.Discard, lateClient)
				lateClient.Close()
			}()
			wantErr(t, receive(t, closed), net.ErrClosed)
			wantEmpty(t, done)
			close(leave)
			wantRest(t, client, want)
			client.Close()
			wantErr(t, receive(t, closed), ErrServerClosed)
			must(t, receive(t, done))
		}
		g, closed := newStreams(t, &Streams{})
		server, _ := pair(t)
		g.start(t, server)
		must(t, g.Close())
		wantErr(t, receive(t, closed), ErrServerClosed)
	})
}

// Streams of several kinds may share a lot, which the program closes.
func TestStreamsShareLot(t *testing.T) {
	l := newLot(t, Config{})
	for range 2 {
		g, closed := newStreams(t, &Streams{Lot: l, OnInput: func(s *Stream, b []byte) error { return s.Write(b) }})
		server, client := pair(t, "tcp")
		g.start(t, server)
		send(t, client, "x")
		expect(t, client, "x")
		if lots := g.Lots(); len(lots) != 1 || lots[0] != l {
			t.Error("another lot")
		}
		must(t, g.Shutdown(t.Context()))
		wantErr(t, receive(t, closed), ErrServerClosed)
	}
	if l.closing.Load() {
		t.Error("the lot was closed")
	}
}

// What Start gets counts as what the peer has sent, however much that is.
func TestStreamStraysReceived(t *testing.T) {
	for _, n := range []int{0, maxStrays, maxStrays + 1, 5000, 1<<16 - 1, 1 << 16, 1<<16 + maxStrays, 1 << 20} {
		g, closed := newStreams(t, &Streams{})
		server, client := pair(t, "tcp")
		s := new(Stream)
		must(t, g.Open(s, server))
		must(t, s.Start(make([]byte, n), nil))
		if n <= maxStrays {
			send(t, client, strings.Repeat("x", maxStrays+1-n))
		}
		wantErr(t, receive(t, closed), ErrTooLong)
	}
}

// Open refuses what it cannot serve, and a stream that has failed before Start has no OnClose.
func TestStreamsOpen(t *testing.T) {
	words.Invalid(t, "SlowPolicy", (&Streams{SlowPolicy: 9}).Open(new(Stream), opaqueConn{}))
	words.Invalid(t, "Backend", (&Streams{Backend: "none such"}).Open(new(Stream), opaqueConn{}))
	g, closed := newStreams(t, &Streams{MaxConns: 1})
	wantErr(t, g.Open(new(Stream), nil), socknotify.ErrInvalid)
	server, _ := pair(t, "tcp")
	s := new(Stream)
	must(t, g.Open(s, server))
	other, _ := pair(t, "tcp")
	wantErr(t, g.Open(new(Stream), other), ErrMaxConns)
	must(t, s.Abort(io.ErrNoProgress))
	wantErr(t, s.Start(nil, nil), io.ErrNoProgress)
	wantEmpty(t, closed)
	g.start(t, other)
	if st := g.Stats(); st.Refused != 1 || st.Accepted != 2 || st.Conns != 1 {
		t.Errorf("%+v", st)
	}
}

// With the longest durations in their fields streams work as without timeouts.
func TestStreamLongestDurations(t *testing.T) {
	durationtest.Longest(t, new(Streams), func(t *testing.T, set func(*Streams)) {
		for _, kind := range []string{"TCP", "TLS without handshake", "opaque"} {
			g, closed := newStreams(t, &Streams{MaxQueued: -1,
				OnInput: func(s *Stream, b []byte) error { return s.Write(b) }})
			set(g)
			server, client := streamKinds[kind](t)
			small(t, server, client)
			s := g.start(t, server)
			send(t, client, "x")
			expect(t, client, "x")
			much := bytes.Repeat([]byte{'y'}, 1<<20)
			must(t, s.WriteShared(much)) // more than the system takes
			must(t, s.Close(nil))
			wantRest(t, client, string(much))
			client.Close()
			wantErr(t, receive(t, closed), ErrStreamClosed)
		}
	})
}
