package stream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/serving/parking"
	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify/internal/serving/group"
	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/durationtest"
	"github.com/socknotify/socknotify/internal/test/testclock"
	"github.com/socknotify/socknotify/internal/test/words"
)

// newStreams completes g, and verifies at the end of the test that nothing is left behind.
func newStreams(t testing.TB, g *Streams) (*Streams, chan error) {
	t.Helper()
	closed := make(chan error, 100)
	if g.OnClose == nil {
		g.OnClose = func(_ *Stream, err error) { closed <- err }
	}
	if g.Logger == nil {
		g.Logger = conntest.Quiet
	}
	t.Cleanup(func() {
		g.Close()
		check.OK(t, g.Shutdown(context.Background()))
		if g.Lot != nil { // Shutdown waits for OnClose, not for the function that has called it
			await.Until(t, "no function runs", func() bool { return g.Stats().Running == 0 })
		}
		if s := g.Stats(); s.Conns != 0 || s.QueuedBytes != 0 || s.Parked != 0 || s.Running != 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
	return g, closed
}

// start starts a stream.
func (g *Streams) start(t testing.TB, conn net.Conn) *Stream {
	t.Helper()
	s := new(Stream)
	check.OK(t, g.Open(s, conn))
	check.OK(t, s.Start(nil, nil))
	return s
}

// A stream answers what its peer sends, is parked between, and is written to from elsewhere while
// it is. When the peer ends its stream, the stream ends.
func TestStream(t *testing.T) {
	conntest.EachKind(t, func(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn)) {
		g, closed := newStreams(t, &Streams{TimeCalls: true, MaxQueued: -1, OnInput: func(s *Stream, b []byte) error { return s.Write(b) }})
		server, client := pair(t)
		s := new(Stream)
		s.Value = "mine"
		check.OK(t, g.Open(s, server))
		greet, early := func(s *Stream) error { return s.Write([]byte("hello ")) }, "early "
		if s.end.Fresh { // the lot, or the handshake, reads the first bytes
			early = ""
		}
		check.OK(t, s.Start([]byte(early), greet))
		conntest.Expect(t, client, "hello "+early)
		for i := range 20 {
			text := fmt.Sprint("message ", i)
			conntest.Send(t, client, text)
			conntest.Expect(t, client, text)
			check.OK(t, s.Writev([]byte("from "), nil, []byte("elsewhere")))
			conntest.Expect(t, client, "from elsewhere")
		}
		big, answer := bytes.Repeat([]byte("0123456789abcdef"), 64<<10), make([]byte, 1<<20)
		go client.Write(big)
		if _, err := io.ReadFull(client, answer); err != nil || !bytes.Equal(answer, big) {
			t.Fatalf("another answer, %v", err)
		}
		check.OK(t, s.Flush(t.Context()))
		if s.Queued() != 0 || s.Closing() || s.Value != "mine" || s.NetConn() == nil || s.RemoteAddr() == nil {
			t.Error("the stream's methods")
		}
		if n := len(slices.Collect(g.All())); n != 1 {
			t.Errorf("%d streams", n)
		}
		client.(interface{ CloseWrite() error }).CloseWrite()
		check.Is(t, await.Value(t, closed), io.EOF)
		check.Is(t, s.Write(nil), ErrClosed)
		check.Is(t, s.Write([]byte("x")), net.ErrClosed)
		check.Is(t, s.Flush(t.Context()), ErrClosed)
		check.Is(t, s.Abort(nil), ErrClosed)
		await.Until(t, "it is gone", func() bool { return g.Stats().Conns == 0 })
		if st := g.Stats(); st.Accepted != 1 || st.Calls < 20 || st.CallTime.Count() != st.Calls {
			t.Errorf("%+v", st)
		}
	})
}

// Many goroutines write while the peer reads slowly and OnInput answers: each write arrives whole,
// and those of a goroutine in their order.
func TestStreamConcurrentWrites(t *testing.T) {
	conntest.EachKind(t, func(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn)) {
		const writers, messages = 8, 60
		g, _ := newStreams(t, &Streams{MaxQueued: -1, OnInput: func(*Stream, []byte) error { return nil }})
		server, client := pair(t)
		conntest.Small(t, server, client)
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
				conntest.Send(t, client, "x") // the function runs, too
			}
			line, err := in()
			check.OK(t, err)
			var w, m int
			fmt.Sscanf(line, "%d %d", &w, &m)
			if want := fmt.Sprintf("%d %d %s", w, m, strings.Repeat(string(rune('a'+w)), 1+m*97)); line != want || next[w] != m {
				t.Fatalf("%.40q, want message %d of %d", line, next[w], w)
			}
			next[w]++
		}
		all.Wait()
		await.Until(t, "nothing is queued", func() bool { return g.Stats().QueuedBytes == 0 })
	})
}

// newLines returns a function that returns the next line.
func newLines(conn net.Conn) func() (string, error) {
	conn.SetReadDeadline(time.Now().Add(conntest.Timeout))
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
	conntest.EachKind(t, func(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn)) {
		for _, policy := range []SlowPolicy{0, SlowClose, SlowDrop} {
			for _, size := range []int{1, 16 << 10} {
				const most = 64 << 10
				g, closed := newStreams(t, &Streams{MaxQueued: most, SlowPolicy: policy})
				server, client := pair(t)
				conntest.Small(t, server, client)
				s := g.start(t, server)
				sent, block := 0, bytes.Repeat([]byte{'x'}, 16<<10)
				for s.Queued() == 0 { // until the system takes no more
					check.OK(t, s.Write(block))
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
					check.Is(t, err, ErrQueueFull)
					check.OK(t, s.Close(nil))
					conntest.ExpectRest(t, client, strings.Repeat("x", sent))
					client.Close()
					check.Is(t, await.Value(t, closed), ErrClosed)
					if n := g.Stats(); n.Dropped != 1 || n.TimedOut.Slow != 0 {
						t.Errorf("%+v", n)
					}
					continue
				}
				check.Is(t, err, park.ErrSlow)
				check.Is(t, await.Value(t, closed), park.ErrSlow)
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
		server, client := conntest.Pair(t, "tcp")
		conntest.Small(t, server, client)
		s := g.start(t, server)
		check.OK(t, s.WriteShared(shared))
		streams, clients = append(streams, s), append(clients, client)
	}
	for i, s := range streams {
		check.Is(t, s.Write([]byte("y")), park.ErrSlow)
		clients[i].Close()
	}
	server, client := conntest.Pair(t, "tcp")
	conntest.Small(t, server, client)
	s := g.start(t, server)
	check.OK(t, s.WriteShared(shared))
	s.mu.Lock()
	if b := s.queue().blocks[0]; &b[len(b)-1] != &shared[len(shared)-1] {
		t.Error("a shared block was copied")
	}
	s.mu.Unlock()
	for i := range 1000 {
		check.OK(t, s.WriteLatest(fmt.Append(nil, "latest ", i, " ")))
	}
	check.OK(t, s.WriteLast([]byte("last"), io.ErrNoProgress))
	check.Is(t, s.WriteLast(nil, nil), ErrClosed)
	check.Is(t, s.WriteLatest(nil), ErrClosed)
	check.OK(t, s.Close(nil))
	conntest.ExpectRest(t, client, string(shared)+"latest 999 last")

	// An empty one changes nothing, also where the one before is all that is queued.
	server, client = conntest.Pair(t, "tcp")
	conntest.Small(t, server, client)
	server.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	before, _ := server.Write(shared)
	server.SetWriteDeadline(time.Time{})
	s = g.start(t, server)
	check.OK(t, s.WriteLatest([]byte("latest")))
	check.OK(t, s.WriteLatest(nil))
	check.OK(t, s.Close(nil))
	conntest.ExpectRest(t, client, string(shared[:before])+"latest")
}

// What was queued when the stream was closed is sent before it ends, and the peer's further bytes
// are discarded. With CloseWrite they are still handled. Abort loses what is queued.
func TestStreamClose(t *testing.T) {
	conntest.EachKind(t, func(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn)) {
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
			conntest.Small(t, server, client)
			s := g.start(t, server)
			conntest.Send(t, client, "first")
			if b := await.Value(t, got); b != "first" {
				t.Fatalf("%q", b)
			}
			switch how {
			case "close":
				check.OK(t, s.WriteShared(much))
				check.OK(t, s.Close(own))
				check.Is(t, s.Close(nil), ErrClosed)
				if parking.HalfCloser(s.NetConn()) != nil { // others may be closed before it is read, which resets them
					conntest.Send(t, client, "late")
				}
				conntest.ExpectRest(t, client, string(much))
				client.Close()
				check.Is(t, await.Value(t, closed), own)
				check.Empty(t, got)
			case "error":
				conntest.Send(t, client, "fail")
				await.Value(t, got)
				conntest.ExpectRest(t, client, string(much))
				check.Is(t, await.Value(t, closed), own) // although the client does not end its side
			case "close write":
				check.OK(t, s.WriteShared(much))
				if err := s.CloseWrite(); err != nil { // not every connection can
					check.Is(t, err, errors.ErrUnsupported)
					check.OK(t, s.Abort(nil))
					await.Value(t, closed)
					break
				}
				check.Is(t, s.CloseWrite(), ErrClosed)
				conntest.ExpectRest(t, client, string(much))
				conntest.Send(t, client, "second")
				if b := await.Value(t, got); b != "second" {
					t.Fatalf("%q", b)
				}
				client.Close()
				check.Is(t, await.Value(t, closed), io.EOF)
			case "abort":
				check.OK(t, s.WriteShared(much))
				check.OK(t, s.Abort(own))
				check.Is(t, await.Value(t, closed), own)
			}
			client.Close()
		}
	})
}

// A peer that has ended its stream still gets what was queued for it.
func TestStreamHalfClosedPeer(t *testing.T) {
	conntest.EachKind(t, func(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn)) {
		much := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
		g, closed := newStreams(t, &Streams{MaxQueued: -1, OnInput: func(s *Stream, b []byte) error {
			return s.WriteShared(much)
		}})
		server, client := pair(t)
		conntest.Small(t, server, client)
		g.start(t, server)
		conntest.Send(t, client, "go")
		check.OK(t, client.(interface{ CloseWrite() error }).CloseWrite())
		await.Until(t, "the server has it", func() bool { return g.Stats().QueuedBytes > 0 })
		conntest.ExpectRest(t, client, string(much))
		check.Is(t, await.Value(t, closed), io.EOF)
	})
}

// A peer that has ended its stream and reads nothing is closed by WriteTimeout.
func TestStreamHalfClosedPeerStops(t *testing.T) {
	conntest.EachKind(t, func(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn)) {
		much := make([]byte, 16<<20)
		g, closed := newStreams(t, &Streams{MaxQueued: -1, WriteTimeout: 100 * time.Millisecond, OnInput: func(s *Stream, b []byte) error {
			return s.WriteShared(much)
		}})
		server, client := pair(t)
		conntest.Small(t, server, client)
		g.start(t, server)
		conntest.Send(t, client, "go")
		check.OK(t, client.(interface{ CloseWrite() error }).CloseWrite())
		if err := await.Value(t, closed); !errors.Is(err, park.ErrSlow) && !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		await.Until(t, "nothing is left", func() bool { st := g.Stats(); return st.Conns == 0 && st.QueuedBytes == 0 })
	})
}

// Streams without OnInput discard a little of what their peers send.
func TestStreamStrays(t *testing.T) {
	conntest.EachKind(t, func(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn)) {
		g, closed := newStreams(t, &Streams{})
		server, client := pair(t)
		s := g.start(t, server)
		conntest.Send(t, client, strings.Repeat("x", maxStrays))
		check.OK(t, s.Write([]byte("still here")))
		conntest.Expect(t, client, "still here")
		check.Empty(t, closed)
		conntest.Send(t, client, "x")
		check.Is(t, await.Value(t, closed), park.ErrTooLong)
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
	server, client := conntest.Pair(t, "tcp")
	s := g.start(t, server)
	await.Value(t, called)
	for range 3 {
		await.Until(t, "it is parked", func() bool { st := g.Stats(); return st.Parked == 1 && st.Running == 0 })
		clock.Advance(time.Minute - time.Second)
		check.Empty(t, called)
		for len(called) == 0 {
			clock.Advance(time.Second)
			runtime.Gosched()
		}
		if idle := await.Value(t, called); idle < time.Minute {
			t.Errorf("idle for %v", idle)
		}
		conntest.Expect(t, client, "beat ")
	}
	s.Wake()
	if idle := await.Value(t, called); idle >= time.Minute {
		t.Errorf("idle for %v", idle)
	}
	conntest.Send(t, client, "x")
	await.Value(t, called)
	check.OK(t, s.Close(nil))
	conntest.ExpectRest(t, client, "")
	client.Close()
	check.Is(t, await.Value(t, closed), ErrClosed)
}

// Nothing moves, or nothing is taken: whether the stream is parked, or OnInput runs, or it has a
// goroutine.
func TestStreamTimeouts(t *testing.T) {
	t.Parallel() // it waits
	conntest.EachKind(t, func(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn)) {
		t.Parallel()
		const short = 100 * time.Millisecond
		g, closed := newStreams(t, &Streams{IdleTimeout: short})
		server, _ := pair(t)
		g.start(t, server)
		err := await.Value(t, closed)
		check.Is(t, err, park.ErrIdle)
		check.Is(t, err, os.ErrDeadlineExceeded)
		if n := g.Stats().TimedOut; n.Idle != 1 {
			t.Errorf("%+v", n)
		}
		for _, parked := range []bool{true, false} {
			leave := make(chan bool, 2)
			g, closed := newStreams(t, &Streams{MaxQueued: -1, WriteTimeout: short,
				OnInput: func(*Stream, []byte) error { leave <- true; leave <- true; return nil }})
			leave <- true
			server, client := pair(t)
			conntest.Small(t, server, client)
			s := g.start(t, server)
			conntest.Send(t, client, "x")
			await.Until(t, "OnInput runs", func() bool { return g.Stats().Calls == 1 })
			if parked {
				<-leave
			}
			await.Until(t, "it is counted", func() bool {
				if s.Queued() < 1<<20 {
					s.Write(make([]byte, 64<<10)) // until the system takes no more
				}
				return g.Stats().TimedOut.Slow == 1
			})
			if !parked {
				<-leave
			}
			check.Is(t, await.Value(t, closed), park.ErrSlow)
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
		"silent":  {&Streams{IdleTimeout: short}, "", park.ErrIdle},
		"half":    {&Streams{HandshakeTimeout: short}, "\x16\x03", park.ErrHandshake},
		"invalid": {&Streams{}, "GET / HTTP/1.1\r\n\r\n", tls.RecordHeaderError{}},
		"gone":    {&Streams{}, "", io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			g, closed := newStreams(t, c.streams)
			server, client := conntest.Pair(t, "tcp")
			s := g.start(t, conntest.TLSKind{Version: tls.VersionTLS13}.Server(t, server))
			check.OK(t, s.Write([]byte("greeting"))) // for after the handshake
			switch {
			case name == "gone":
				client.Close()
			case c.say != "":
				conntest.Send(t, client, c.say)
			}
			err := await.Value(t, closed)
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
		server, client := conntest.Pair(t, "tcp")
		g.start(t, server)
		conntest.Send(t, client, "x")
		if err := await.Value(t, closed); !errors.As(err, new(*park.PanicError)) {
			t.Errorf("%T", err)
		}
		server, client = conntest.Pair(t, "tcp")
		g.start(t, server)
		conntest.Send(t, client, "exit")
		check.Is(t, await.Value(t, closed), group.ErrGoexit)
		conntest.ExpectRest(t, client, "")
		if st := g.Stats(); st.Panics != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// Shutdown ends streams after what is queued, or as OnShutdown does, and waits. Close waits for
// nothing. Both refuse others.
func TestStreamsShutdown(t *testing.T) {
	check.Is(t, new(Streams).Shutdown(nil), socknotify.ErrInvalid) //lint:ignore SA1012 it is what is tested
	check.OK(t, new(Streams).Shutdown(t.Context()))
	conntest.EachKind(t, func(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn)) {
		for _, hook := range []bool{false, true} {
			entered, leave := make(chan bool), make(chan bool)
			g, closed := newStreams(t, &Streams{OnInput: func(*Stream, []byte) error { entered <- true; <-leave; return nil }})
			if hook {
				g.OnShutdown = func(s *Stream) {
					s.WriteLast([]byte("bye"), park.ErrServerClosed)
					s.Close(nil)
				}
			}
			want := map[bool]string{true: "bye"}[hook]
			server, client := pair(t)
			g.start(t, server)
			conntest.Send(t, client, "x")
			<-entered
			opened := new(Stream)
			late, lateClient := pair(t)
			check.OK(t, g.Open(opened, late))
			done := make(chan error)
			go func() { done <- g.Shutdown(t.Context()) }()
			await.Until(t, "Shutdown has begun", g.group.HasEnded)
			check.Is(t, g.Open(new(Stream), server), park.ErrServerClosed)
			check.OK(t, opened.Start(nil, nil))
			go func() { // one whose handshake is refused may be reset
				io.Copy(io.Discard, lateClient)
				lateClient.Close()
			}()
			check.Is(t, await.Value(t, closed), net.ErrClosed)
			check.Empty(t, done)
			close(leave)
			conntest.ExpectRest(t, client, want)
			client.Close()
			check.Is(t, await.Value(t, closed), park.ErrServerClosed)
			check.OK(t, await.Value(t, done))
		}
		g, closed := newStreams(t, &Streams{})
		server, _ := pair(t)
		g.start(t, server)
		check.OK(t, g.Close())
		check.Is(t, await.Value(t, closed), park.ErrServerClosed)
	})
}

// Streams of several kinds may share a lot, which the program closes.
func TestStreamsShareLot(t *testing.T) {
	l := newLot(t, park.Config{})
	for range 2 {
		g, closed := newStreams(t, &Streams{Lot: l, OnInput: func(s *Stream, b []byte) error { return s.Write(b) }})
		server, client := conntest.Pair(t, "tcp")
		g.start(t, server)
		conntest.Send(t, client, "x")
		conntest.Expect(t, client, "x")
		if lots := g.Lots(); len(lots) != 1 || lots[0] != l {
			t.Error("another lot")
		}
		check.OK(t, g.Shutdown(t.Context()))
		check.Is(t, await.Value(t, closed), park.ErrServerClosed)
	}
	if l.Engine().IsClosing() {
		t.Error("the lot was closed")
	}
}

// What Start gets counts as what the peer has sent, however much that is.
func TestStreamStraysReceived(t *testing.T) {
	for _, n := range []int{0, maxStrays, maxStrays + 1, 5000, 1<<16 - 1, 1 << 16, 1<<16 + maxStrays, 1 << 20} {
		g, closed := newStreams(t, &Streams{})
		server, client := conntest.Pair(t, "tcp")
		s := new(Stream)
		check.OK(t, g.Open(s, server))
		check.OK(t, s.Start(make([]byte, n), nil))
		if n <= maxStrays {
			conntest.Send(t, client, strings.Repeat("x", maxStrays+1-n))
		}
		check.Is(t, await.Value(t, closed), park.ErrTooLong)
	}
}

// Open refuses what it cannot serve, and a stream that has failed before Start has no OnClose.
func TestStreamsOpen(t *testing.T) {
	words.Invalid(t, "SlowPolicy", (&Streams{SlowPolicy: 9}).Open(new(Stream), conntest.OpaqueConn{}))
	words.Invalid(t, "Backend", (&Streams{Backend: "none such"}).Open(new(Stream), conntest.OpaqueConn{}))
	g, closed := newStreams(t, &Streams{MaxConns: 1})
	check.Is(t, g.Open(new(Stream), nil), socknotify.ErrInvalid)
	server, _ := conntest.Pair(t, "tcp")
	s := new(Stream)
	check.OK(t, g.Open(s, server))
	other, _ := conntest.Pair(t, "tcp")
	check.Is(t, g.Open(new(Stream), other), park.ErrMaxConns)
	check.OK(t, s.Abort(io.ErrNoProgress))
	check.Is(t, s.Start(nil, nil), io.ErrNoProgress)
	check.Empty(t, closed)
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
			server, client := conntest.Kinds[kind](t)
			conntest.Small(t, server, client)
			s := g.start(t, server)
			conntest.Send(t, client, "x")
			conntest.Expect(t, client, "x")
			much := bytes.Repeat([]byte{'y'}, 1<<20)
			check.OK(t, s.WriteShared(much)) // more than the system takes
			check.OK(t, s.Close(nil))
			conntest.ExpectRest(t, client, string(much))
			client.Close()
			check.Is(t, await.Value(t, closed), ErrClosed)
		}
	})
}
