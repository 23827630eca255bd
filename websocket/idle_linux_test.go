package websocket

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/idling"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/race"
	"github.com/socknotify/socknotify/park"
)

func playRole() bool {
	return idling.Roles{"server": playServer, "clients": playClients, "audience": playAudience}.Play()
}

// A connection that has sent and received a message needs at most 1,000 live bytes, and so does one
// that never has, or whose messages were compressed; with TLS at most 1,400.
func TestIdleMemory(t *testing.T) {
	long.Only(t, "it makes 5,000 connections, three times")
	if race.Enabled {
		t.Skip("the memory of the race detector would be included")
	}
	idling.Enough(t)
	for _, c := range []struct {
		kind, messages string
		most           float64
	}{
		{"park", "0", 1000}, {"park", "1", 1000}, {"park", "compressed", 1000},
		{"park TLS", "1", 1400},
	} {
		u := idling.Measure(t, c.kind, c.messages, c.kind)
		t.Logf("%s, %s messages: %.0f live bytes, %d of them stack; RSS %d", c.kind, c.messages,
			u.Live(), u.Stack/int64(idling.Conns), u.RSS/int64(idling.Conns))
		if u.Live() > c.most {
			t.Errorf("%s, %s messages: %.0f bytes", c.kind, c.messages, u.Live())
		}
	}
}

// BenchmarkIdle measures the memory of a server process for each idle connection, which has had one message echoed.
func BenchmarkIdle(b *testing.B) {
	for _, kind := range []string{"park", "net/http"} {
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				idling.Measure(b, kind, "1", kind).Report(b)
			}
		})
	}
}

func playServer(args []string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	s := &Server{OnMessage: echo, Compression: 1, PingInterval: -1} // the clients answer no pings
	hs := &http.Server{Handler: s}
	switch args[0] {
	case "park":
		go (&park.HTTPServer{Server: hs}).Serve(ln)
	case "park TLS":
		cert, _, err := selfcert.New(time.Hour, "localhost")
		if err != nil {
			panic(err)
		}
		hs.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
		go (&park.HTTPServer{Server: hs}).ServeTLS(ln, "", "")
	default:
		go hs.Serve(ln)
	}
	idling.Serve(ln, func() int { return s.Stats().Parked })
}

func handshake(addr, header string) (net.Conn, *bufio.Reader, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	return upgrade(conn, header)
}

// upgrade makes a connection a WebSocket. Header lines may be added to the request.
func upgrade(conn net.Conn, header string) (net.Conn, *bufio.Reader, error) {
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"+header+"\r\n")
	in := bufio.NewReaderSize(conn, 512)
	answer, err := http.ReadResponse(in, nil)
	if err == nil && (answer.StatusCode != http.StatusSwitchingProtocols ||
		(answer.Header.Get("Sec-WebSocket-Extensions") != "") != (header == offer)) {
		err = fmt.Errorf("%s %v", answer.Status, answer.Header)
	}
	return conn, in, err
}

// payloadOf reads the head of a frame, and returns the length of its payload.
func payloadOf(in *bufio.Reader) (n int64, compressed bool, err error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:2]); err != nil {
		return 0, false, err
	}
	if n = int64(head[1]); n == 126 {
		_, err = io.ReadFull(in, head[2:])
		n = int64(binary.BigEndian.Uint16(head[2:]))
	}
	return n, head[0]&rsv1 != 0, err
}

// exchangeCompressed sends a compressed message, and reads the answer, which must be compressed.
func exchangeCompressed(conn net.Conn, in *bufio.Reader) error {
	message := (&deflater{level: 1}).deflate(nil, broadcastPayload())
	if _, err := conn.Write(frame(fin|rsv1|byte(Binary), string(message))); err != nil {
		return err
	}
	n, compressed, err := payloadOf(in)
	if err == nil && !compressed {
		err = errors.New("the answer is not compressed")
	}
	if err == nil {
		_, err = io.CopyN(io.Discard, in, n)
	}
	return err
}

func playClients(args []string) {
	dial := func() (net.Conn, error) { return net.Dial("tcp", args[0]) }
	if args[2] == "park TLS" {
		config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
		dial = func() (net.Conn, error) { return tls.Dial("tcp", args[0], config) }
	}
	idling.Connect(func() (net.Conn, error) {
		conn, err := dial()
		if err != nil {
			return nil, err
		}
		header := ""
		if args[1] == "compressed" {
			header = offer
		}
		conn, in, err := upgrade(conn, header)
		switch {
		case err != nil:
		case args[1] == "compressed":
			err = exchangeCompressed(conn, in)
		case args[1] == "1":
			conn.Write(text("x"))
			_, err = io.ReadFull(in, make([]byte, 3))
		}
		return conn, err
	})
}

// playAudience connects clients, the first of which never read. For each line of the input, it waits until the others have
// received one message.
func playAudience(args []string) {
	n, _ := strconv.Atoi(args[1])
	slow, _ := strconv.Atoi(args[2])
	var round sync.WaitGroup
	next := make([]chan bool, n)
	var failed atomic.Int64
	var conns []net.Conn
	for i := range n {
		conn, in, err := handshake(args[0], args[3])
		if err != nil {
			panic(err)
		}
		conns = append(conns, conn)
		if i < slow {
			conn.(*net.TCPConn).SetReadBuffer(4096)
			continue
		}
		next[i] = make(chan bool)
		go func() {
			for range next[i] {
				n, compressed, err := payloadOf(in)
				if err == nil {
					_, err = io.CopyN(io.Discard, in, n)
				}
				if err != nil || compressed != (args[3] == offer) {
					failed.Add(1)
				}
				round.Done()
			}
		}()
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		round.Add(n - slow)
		for _, c := range next[slow:] {
			c <- true
		}
		round.Wait()
		fmt.Println(failed.Load())
	}
	runtime.KeepAlive(conns)
}

const broadcastSize, broadcastQueue = 8 << 10, 64 << 10

// broadcastPayload returns records in JSON.
var broadcastPayload = sync.OnceValue(func() []byte {
	random := rand.New(rand.NewPCG(1, 2))
	var b []byte
	for len(b) < broadcastSize {
		b = fmt.Appendf(b, `{"topic":"orders.%d","id":"9f0c21aa-%d","data":"%d shipped"}`+"\n",
			random.IntN(10_000), random.IntN(1_000_000), random.IntN(100))
	}
	return b[:broadcastSize]
})

// startAudience starts a server with n parked connections, some of which never read. header is a
// line of their requests.
func startAudience(
	t testing.TB, n, slow int, policy SlowPolicy, header string,
) (*Server, *idling.Process) {
	idling.Enough(t)
	s := &Server{OnMessage: echo, MaxQueued: broadcastQueue, SlowPolicy: policy, Compression: 1,
		WriteTimeout: -1, PingInterval: -1, Logger: slog.New(slog.DiscardHandler)}
	hs := &http.Server{Handler: s, ConnState: func(conn net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conn.(*net.TCPConn).SetWriteBuffer(32 << 10) // the system would queue megabytes
		}
	}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ps, ended := &park.HTTPServer{Server: hs}, make(chan error)
	go func() { ended <- ps.Serve(ln) }()
	t.Cleanup(func() {
		s.Close()
		must(t, s.Shutdown(context.Background()))
		ps.Close()
		<-ended
	})
	audience := idling.Start(t, "audience", ln.Addr().String(), strconv.Itoa(n), strconv.Itoa(slow),
		header)
	audience.Say("")
	until(t, "all are parked", func() bool { return s.Stats().Parked == n })
	return s, audience
}

// broadcast sends one message, and waits until all that read have received it. It returns what was queued at first.
func broadcast(t testing.TB, s *Server, audience *idling.Process, want int) (queued int) {
	m, err := s.Prepare(Binary, broadcastPayload())
	must(t, err)
	if sent := s.Broadcast(m); sent < want {
		t.Fatalf("sent to %d of %d", sent, want)
	}
	queued = int(s.Stats().QueuedBytes)
	if failed := audience.Say("next"); failed != "0" {
		t.Fatalf("%s have not received a message", failed)
	}
	return queued
}

// Some peers do not read. The others get every message of a broadcast, and the slow ones are closed, or lose messages, and
// are counted. What is queued for them is bounded.
func TestBroadcast(t *testing.T) {
	for _, c := range []struct {
		name    string
		n, slow int
		policy  SlowPolicy
	}{{"close", idling.Conns, 500, SlowClose}, {"drop", 500, 50, SlowDrop}} {
		t.Run(c.name, func(t *testing.T) {
			if race.Enabled || testing.Short() {
				c.n, c.slow = 500, 50
			}
			s, audience := startAudience(t, c.n, c.slow, c.policy, "")
			var before runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			most := 0
			lost := func() uint64 { return s.Stats().TimedOut.Slow + s.Stats().Dropped }
			for round := 0; lost() < uint64(c.slow) || round < 30; round++ {
				if most = max(most, broadcast(t, s, audience, c.n-c.slow)); round == 1000 {
					t.Fatalf("the slow ones are not noticed: %+v", s.Stats())
				}
				if g := runtime.NumGoroutine(); g > 200 { // those of a few workers
					t.Errorf("%d goroutines", g)
				}
			}
			if c.policy == SlowClose {
				until(t, "the slow ones are closed", func() bool { return s.Stats().Conns == c.n-c.slow })
			}
			var after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&after)
			st := s.Stats()
			t.Logf("%d connections, %d of them slow: at most %d KiB queued, heap %d KiB more, %+v", c.n, c.slow, most>>10,
				(int64(after.HeapAlloc)-int64(before.HeapAlloc))>>10, st)
			if bound := (broadcastQueue+broadcastSize)*c.slow + (broadcastSize+4)*(c.n-c.slow); most > bound {
				t.Errorf("%d bytes were queued, want at most %d", most, bound)
			}
			closed, dropped := st.TimedOut.Slow == uint64(c.slow) && st.Dropped == 0, st.TimedOut.Slow == 0 && st.Conns == c.n
			if c.policy == SlowClose && !closed || c.policy == SlowDrop && !dropped {
				t.Errorf("%+v", st)
			}
		})
	}
}

// BenchmarkBroadcast is a message to all connections, until all that read have received it. 500
// slow ones should cost the others nothing. A compressed message is compressed once.
func BenchmarkBroadcast(b *testing.B) {
	for _, c := range []struct {
		name, header string
		slow         int
	}{{"0 slow", "", 0}, {"500 slow", "", 500}, {"compressed", offer, 0}} {
		b.Run(c.name, func(b *testing.B) {
			s, audience := startAudience(b, idling.Conns, c.slow, SlowDrop, c.header)
			for s.Stats().Dropped < uint64(c.slow) {
				broadcast(b, s, audience, idling.Conns-c.slow)
			}
			b.ReportAllocs()
			cpu := idling.CPU()
			for b.Loop() {
				broadcast(b, s, audience, idling.Conns-c.slow)
			}
			per := float64(b.N) * float64(idling.Conns-c.slow)
			b.ReportMetric(float64(idling.CPU()-cpu)/per, "CPU-ns/delivery")
		})
	}
}

// Compressing and inflating allocate nothing when the buffers are large enough.
func TestCompressionAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("sync.Pool drops values at random with the race detector")
	}
	d := &deflater{level: 1}
	message := bytes.Repeat([]byte("compress me "), 100)
	var b, again []byte
	n := testing.AllocsPerRun(100, func() {
		b = d.deflate(b[:0], message)
		var err error
		again, err = inflate(again[:0], b, 1<<20)
		must(t, err)
	})
	if n > 0.5 || !bytes.Equal(again, message) { // a collection may empty the pools
		t.Errorf("%.1f allocations, %d bytes", n, len(again))
	}
}
