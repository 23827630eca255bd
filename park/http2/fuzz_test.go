package http2

import (
	"bytes"
	"context"
	"crypto/tls"
	"flag"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park/http2/internal/flow"
)

// connect connects to a server, by TLS if its URL says so.
func connect(t testing.TB, url string) net.Conn {
	t.Helper()
	scheme, address, _ := strings.Cut(url, "://")
	network := "tcp"
	if scheme == "unix" {
		network = scheme
	}
	conn, err := net.Dial(network, address)
	must(t, err)
	if scheme == "https" {
		_, trust := certificate()
		c := tls.Client(conn, &tls.Config{RootCAs: trust, ServerName: "127.0.0.1", NextProtos: []string{"h2"}})
		c.SetDeadline(time.Now().Add(timeout))
		must(t, c.Handshake())
		return c
	}
	return conn
}

// framed returns the frames that write writes.
func framed(write func(f *http2.Framer)) []byte {
	var b bytes.Buffer
	f := http2.NewFramer(&b, nil)
	f.AllowIllegalWrites = true
	write(f)
	return b.Bytes()
}

// FuzzFrames lets a client follow an arbitrary program: requests, bodies, windows, resets, GOAWAY frames of both sides,
// pauses in which the connection is parked, also in the middle of a frame, and, if the program is rude, any frames and any
// bytes. Each frame of the server must be permitted at its time. If the program is polite, each answer must be right, byte
// for byte. At the end all handlers return, and the server has forgotten the connection.
func FuzzFrames(f *testing.F) {
	get := []byte{0x82, 0x86, 0x84, 0x41, 0x01, 'x'} // GET http / x
	for _, frames := range [][]byte{
		framed(func(f *http2.Framer) { // rapid reset
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: get, EndHeaders: true, EndStream: true})
			f.WriteRSTStream(1, http2.ErrCodeCancel)
		}),
		framed(func(f *http2.Framer) { // resets that the server is made to send
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: get, EndHeaders: true})
			f.WriteWindowUpdate(1, flow.Max)
			f.WriteData(1, true, []byte("x"))
		}),
		framed(func(f *http2.Framer) {
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: get})
			f.WriteContinuation(1, false, nil)
			f.WriteContinuation(1, false, []byte{0x40, 1, 'a', 1, 'b'})
			f.WriteContinuation(1, true, []byte{0xbe})
		}),
		framed(func(f *http2.Framer) { // tables of size 0 and 4096, and an entry used often
			block := append([]byte{0x20, 0x3f, 0xe1, 0x1f, 0x40, 1, 'a', 100}, pattern(100)...)
			block = append(block, bytes.Repeat([]byte{0xbe}, 100)...)
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true})
		}),
		framed(func(f *http2.Framer) {
			f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: flow.Max},
				http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
			f.WriteSettingsAck()
			f.WriteSettingsAck()
		}),
		framed(func(f *http2.Framer) { f.WritePing(false, [8]byte{}) }),
		framed(func(f *http2.Framer) {
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: get, EndHeaders: true})
			f.WriteData(1, false, nil)
			f.WriteDataPadded(1, false, nil, make([]byte, 20))
			f.WritePriority(1, http2.PriorityParam{StreamDep: 1})
			f.WritePriority(3, http2.PriorityParam{StreamDep: 3})
		}),
		framed(func(f *http2.Framer) {
			f.WriteWindowUpdate(0, 1)
			f.WriteWindowUpdate(0, flow.Max)
			f.WriteWindowUpdate(0, 0)
		}),
		framed(func(f *http2.Framer) {
			f.WriteGoAway(0, http2.ErrCodeNo, nil)
			f.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true})
		}),
		framed(func(f *http2.Framer) { f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: get}) }),
	} {
		for _, repeat := range []byte{0, 31 << 3} {
			program := frameProgram(frames, repeat)
			f.Add(program, true, false)
			f.Add(append([]byte{0, 0, 33, 0, 9, 0, 8, 0}, append(program, 10, 3)...), true, true)
		}
	}
	const echo, size, hold, early = 0, 16, 32, 48 // for the operations 0, 1 and 2
	const extended = 64
	for _, program := range [][]byte{
		{echo, 0, 255, 40, 9, 0, 3 + 32, 100, 10, 4, 5, 0, 9, 0, size, 4, 10, 7, 9, 0},
		{8, 0, size, 3, size, 91, 8, 1, 7, 0, 7 + 16, 1, 9, 0, 8, 2, 6, 1, 13, 1, size, 3},
		{hold, 0, hold, 3, 6, 0, 6, 0, early, 0, 3 + 64, 200, 10, 9, 9, 0, 13, 0, echo, 7},
		{2, 200, 2, 0, 2, 255, 2, 7, 10, 100, 2, 31, 11, 0, 11, 1, 12, 1, 10, 5},
		{size, 255, size, 255, size, 255, size, 255, 8, 1, 9, 0, 8, 0, 6, 2, 8, 4, 13, 1, 9, 0},
		bytes.Repeat([]byte{hold, 3, 6, 0}, 40),
		bytes.Repeat([]byte{echo, 4, 3 + 252, 255, 9, 0, 3 + 252, 251, 5, 0}, 3),
		{extended + echo, 0, 3 + 252, 100, 9, 0, 10, 4, 3 + 252, 100, 9, 0, 3 + 252, 103, 9, 0, 6, 0},
		bytes.Repeat([]byte{extended + echo, 4, 8, 1, 3 + 252, 100, 9, 0, 7 + 16, 20, 9, 0,
			4 + 248, 7, 6, 1}, 4),
		{extended + echo, 0, extended + size, 100, extended + hold, 0, extended + early, 3, 9, 0,
			6, 1, 13, 1, 4, 7},
	} {
		f.Add(program, false, false)
		f.Add(program, false, true)
	}
	clear, secure := newModelServer(f, false), newModelServer(f, true)
	f.Fuzz(func(t *testing.T, program []byte, rude, overTLS bool) {
		program = program[:min(len(program), 2000)]
		s := clear
		if overTLS {
			s = secure
		}
		m := newModel(t, s, connect(t, s.url))
		m.play(program, rude)
		m.finish()
		s.settled(t)
	})
}

var soak = flag.Duration("soak", 0,
	"how long TestRandom and TestMixedStress run; with it, TestCorpus is not shortened")

// Many clients follow random programs at once, all polite, until the server is shut down. All requests that the server has
// accepted are answered rightly, and nothing is left.
func TestRandom(t *testing.T) {
	for end := time.Now().Add(*soak); ; {
		both(t, func(t *testing.T, secure bool) {
			random(t, secure, rand.Uint64())
		})
		if t.Failed() || !time.Now().Before(end) {
			return
		}
	}
}

func random(t *testing.T, secure bool, seed uint64) {
	s := newModelServer(t, secure)
	var clients sync.WaitGroup
	for i := range 10 {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		clients.Go(func() {
			for range 4 {
				program := make([]byte, 20+r.IntN(300))
				for i := range program {
					program[i] = byte(r.Uint32())
				}
				m := newModel(t, s, connect(t, s.url))
				m.play(program, false)
				m.finish()
			}
		})
	}
	clients.Wait()
	s.settled(t)
	// More programs, and Shutdown in the middle of them.
	for i := range 10 {
		r := rand.New(rand.NewPCG(seed, uint64(100+i)))
		m := newModel(t, s, connect(t, s.url))
		clients.Go(func() {
			program := make([]byte, 300)
			for i := range program {
				program[i] = byte(r.Uint32())
			}
			m.play(program, false)
			m.finish()
		})
	}
	await.Pause(time.Duration(rand.New(rand.NewPCG(seed, 1000)).IntN(30)) * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	must(t, s.Shutdown(ctx))
	clients.Wait()
	s.settled(t)
	if t.Failed() {
		t.Logf("seed %d", seed)
	}
}
