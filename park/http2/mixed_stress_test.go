package http2

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/sse"
	"github.com/socknotify/socknotify/websocket"
)

// A mixture is a server with streams of all kinds.
type mixture struct {
	*park.HTTPServer
	events   sse.Server
	sockets  websocket.Server
	opened   atomic.Int64 // WebSockets whose OnOpen was called
	closed   atomic.Int64
	blocked  atomic.Int64 // handlers that run
	answered atomic.Int64 // requests that have waited
	asked    atomic.Int64
	url      string
}

func newMixture(t testing.TB, secure bool) *mixture {
	m := new(mixture)
	m.events = sse.Server{Retry: retryNone, Heartbeat: -1, MaxQueued: 4 << 10}
	m.sockets = websocket.Server{
		MaxQueued: 4 << 10, PingInterval: 20 * time.Millisecond, PongTimeout: -1,
		CloseTimeout: 20 * time.Millisecond,
		OnOpen: func(*websocket.Conn, *http.Request) error {
			m.opened.Add(1)
			return nil
		},
		OnMessage: func(c *websocket.Conn, kind websocket.Kind, payload []byte) error {
			if rand.IntN(50) == 0 {
				await.UpTo(5 * time.Millisecond) // what comes waits
			}
			return c.Write(kind, payload)
		},
		OnClose: func(*websocket.Conn, error) { m.closed.Add(1) },
	}
	mux := http.NewServeMux()
	mux.Handle("CONNECT /socket", &m.sockets)
	mux.Handle("GET /events", &m.events)
	mux.HandleFunc("GET /wait", func(w http.ResponseWriter, r *http.Request) {
		o := park.SuspendOptions{Timeout: 30 * time.Millisecond}
		register := func(*park.Suspended) { m.asked.Add(1) }
		// It fails if the client has gone already.
		park.SuspendWith(w, r, o, register, func(w http.ResponseWriter, _ *http.Request, _ *park.Suspended) {
			m.answered.Add(1)
			io.WriteString(w, "waited")
		})
	})
	mux.HandleFunc("GET /block", func(w http.ResponseWriter, r *http.Request) {
		m.blocked.Add(1)
		defer m.blocked.Add(-1)
		for n := 0; ; n++ {
			if _, err := fmt.Fprintln(w, n); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-r.Context().Done():
				return
			case <-time.After(time.Millisecond): // the pace of what the handler writes
			}
		}
	})
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		m.blocked.Add(1)
		defer m.blocked.Add(-1)
		io.Copy(w, r.Body)
	})
	m.HTTPServer = &park.HTTPServer{HTTP2: &Server{ExtendedConnect: true}, Linger: -1,
		Server: &http.Server{Handler: mux}}
	m.url, _ = start(t, m.HTTPServer, m.HTTPServer.Server, secure)
	return m
}

// Clients with small windows have WebSockets, event streams, requests that wait, handlers that
// block and bodies on the same connections. They send in pieces, ping, open windows in small steps,
// end and reset streams, and close connections. Each WebSocket gets its answers in order without a
// hole, OnClose and the continuation of a wait are called once for each, and nothing is left
// behind.
func TestMixedStress(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		m := newMixture(t, secure)
		end := time.Now().Add(max(time.Second, *soak))
		var clients, senders sync.WaitGroup
		for i := range 8 {
			clients.Go(func() {
				for n := 0; time.Now().Before(end) && !t.Failed(); n++ {
					m.client(t, fmt.Sprint(i, ".", n))
				}
			})
		}
		stop := make(chan bool)
		senders.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				m.events.Broadcast(event(t, strings.Repeat("x", rand.IntN(300))))
				await.UpTo(time.Millisecond)
			}
		})
		clients.Wait()
		close(stop)
		senders.Wait()
		until(t, "everything has ended", func() bool {
			return m.sockets.Stats().Conns == 0 && m.events.Stats().Conns == 0 &&
				m.blocked.Load() == 0 && m.Stats().Suspended == 0 && m.answered.Load() == m.asked.Load()
		})
		if o, c := m.opened.Load(), m.closed.Load(); o != c || o == 0 {
			t.Errorf("%d WebSockets were opened, %d closed", o, c)
		}
		if m.asked.Load() == 0 || m.events.Stats().Accepted == 0 {
			t.Errorf("%d requests waited, %d event streams", m.asked.Load(), m.events.Stats().Accepted)
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		must(t, m.sockets.Shutdown(ctx))
		must(t, m.events.Shutdown(ctx))
	})
}

// client is one connection.
func (m *mixture) client(t *testing.T, name string) {
	p := dial(t, m.url)
	p.conn.SetDeadline(time.Now().Add(timeout))
	p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: rand.Uint32N(3000)})
	must(t, p.send())
	var reading sync.WaitGroup
	defer reading.Wait()
	defer p.conn.Close()
	reading.Go(func() { checkAnswers(t, name, p) })
	var sockets []*socketClient
	open := 0
	for range rand.IntN(150) {
		stream := id(rand.IntN(max(open, 1)))
		switch rand.IntN(12) {
		case 0, 1:
			p.extended(id(open), "/socket", "sec-websocket-version", "13")
			sockets = append(sockets, &socketClient{stream: id(open), left: 60_000})
			open++
		case 2:
			path := []string{"/events", "/wait", "/block"}[rand.IntN(3)]
			p.openPart(id(open), true, true,
				":method", "GET", ":scheme", "http", ":authority", "x", ":path", path)
			open++
		case 3:
			p.open(id(open), "/echo", false)
			p.WriteData(id(open), true, pattern(rand.IntN(3000)))
			open++
		case 4, 5, 6, 7:
			if len(sockets) > 0 {
				sockets[rand.IntN(len(sockets))].step(p)
			}
		case 8:
			if open > 0 && rand.IntN(2) == 0 {
				p.WriteRSTStream(stream, http2.ErrCodeCancel)
				sockets = without(sockets, stream)
			}
		case 9:
			p.WritePing(false, [8]byte{})
		case 10:
			p.WriteWindowUpdate(0, 1+rand.Uint32N(20_000))
		case 11:
			if open > 0 {
				p.WriteWindowUpdate(stream, 1+rand.Uint32N(2000))
			}
		}
		if p.send() != nil {
			return
		}
		await.UpTo(time.Millisecond)
	}
}

func without(sockets []*socketClient, stream uint32) (rest []*socketClient) {
	for _, s := range sockets {
		if s.stream != stream {
			rest = append(rest, s)
		}
	}
	return rest
}

// A socketClient is the sending side of a WebSocket. Its messages are numbers, with padding of
// their own.
type socketClient struct {
	stream  uint32
	next    uint32
	left    int    // of the server's window
	pending []byte // the rest of frames whose beginning was sent
	ended   bool
}

// step sends something.
func (s *socketClient) step(p *peer) {
	if s.ended {
		return
	}
	for range rand.IntN(5) {
		message := binary.BigEndian.AppendUint32(nil, s.next)
		message = append(message, pattern(rand.IntN(500))...)
		s.next++
		s.pending = append(s.pending, masked(2, string(message))...)
	}
	switch rand.IntN(20) {
	case 0:
		s.pending = append(s.pending, masked(opPing, "x")...)
	case 1:
		s.pending = append(s.pending, masked(opClose, "\x03\xe8")...)
		s.ended = true
	case 2:
		s.ended = true
	}
	n := len(s.pending)
	if !s.ended {
		n = rand.IntN(n + 1)
	}
	if s.left -= n + 1; s.left < 0 {
		s.ended = true
		return
	}
	p.WriteData(s.stream, s.ended && rand.IntN(2) == 0, s.pending[:n])
	s.pending = s.pending[n:]
}

// checkAnswers reads until the connection ends, and checks that the messages of each WebSocket
// follow each other.
func checkAnswers(t *testing.T, name string, p *peer) {
	received := make(map[uint32][]byte)
	next := make(map[uint32]uint32)
	sockets := make(map[uint32]bool)
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame: // only that of a WebSocket has no type and no length
			sockets[f.StreamID] = f.PseudoValue("status") == "200" && headerOf(f, "content-type") == ""
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				t.Errorf("%s: GOAWAY %v", name, f.ErrCode)
			}
		case *http2.DataFrame:
			if !sockets[f.StreamID] {
				continue
			}
			b := append(received[f.StreamID], f.Data()...)
			for {
				op, payload, rest := cutFrame(b)
				if rest == nil {
					break
				}
				b = rest
				if op != 2 {
					continue
				}
				if n := binary.BigEndian.Uint32(payload); n != next[f.StreamID] {
					t.Errorf("%s, stream %d: message %d, want %d", name, f.StreamID, n, next[f.StreamID])
					return
				}
				next[f.StreamID]++
			}
			received[f.StreamID] = b
		}
	}
}

func headerOf(f *http2.MetaHeadersFrame, name string) string {
	for _, field := range f.RegularFields() {
		if field.Name == name {
			return field.Value
		}
	}
	return ""
}

// cutFrame returns the first frame of a server, of less than 64 KiB, and what follows, which is nil
// if the frame is not whole.
func cutFrame(b []byte) (op byte, payload, rest []byte) {
	if len(b) < 2 {
		return 0, nil, nil
	}
	n, at := int(b[1]), 2
	if n == 126 {
		if len(b) < 4 {
			return 0, nil, nil
		}
		n, at = int(binary.BigEndian.Uint16(b[2:])), 4
	}
	if len(b) < at+n {
		return 0, nil, nil
	}
	return b[0] & 15, b[at : at+n], b[at+n:]
}
