package http2

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	streams "github.com/socknotify/socknotify/stream"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park/http2/internal/flow"
	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

// modelStreams is the server's MaxConcurrentStreams.
const modelStreams = 8

// A modelServer is a server whose handlers are counted.
type modelServer struct {
	*Server
	url    string
	active atomic.Int64
	duplex streams.Streams // of CONNECT requests for /echo
}

func newModelServer(t testing.TB, secure bool) *modelServer {
	m := new(modelServer)
	m.Server = &Server{Linger: -1, ExtendedConnect: true, Server: handler(m.handle)}
	m.duplex.MaxQueued = -1
	m.duplex.OnInput = func(s *streams.Stream, b []byte) error { return s.Write(b) }
	m.Server.Server.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: modelStreams, MaxReceiveBufferPerStream: 100_000}
	t.Cleanup(func() { m.duplex.Close() })
	m.url = serve(t, m.Server, secure)
	watchStates(t, m.Server)
	return m
}

func pattern(n int) []byte { return bytes.Repeat([]byte("0123456789"), n/10+1)[:n] }

func (m *modelServer) handle(w http.ResponseWriter, r *http.Request) {
	m.active.Add(1)
	defer m.active.Add(-1)
	if r.Method == http.MethodConnect && r.URL.Path == "/echo" {
		s := new(streams.Stream)
		if m.duplex.OpenResponse(s, w) == nil {
			s.Start(nil, nil)
		}
		return
	}
	switch r.URL.Path {
	case "/echo":
		buf := make([]byte, 300)
		for {
			n, err := r.Body.Read(buf)
			if n > 0 {
				if _, err := w.Write(buf[:n]); err != nil {
					return
				}
			}
			if err == io.EOF {
				return
			} else if err != nil {
				panic(http.ErrAbortHandler)
			}
		}
	case "/size":
		n, _ := strconv.Atoi(r.URL.RawQuery)
		w.Write(pattern(n))
	case "/hold":
		<-r.Context().Done()
	case "/early":
		io.WriteString(w, "early")
	}
}

// settled waits until no connection and no handler is left.
func (m *modelServer) settled(t testing.TB) {
	t.Helper()
	until(t, "the connections and the handlers have ended", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.conns) == 0 && m.active.Load() == 0 && m.duplex.Stats().Conns == 0
	})
}

// A modelStream is what a client knows of a stream.
type modelStream struct {
	id       uint32
	path     string
	connect  bool
	sent     []byte
	sentEnd  bool // or reset
	reset    bool // by the client
	window   int64
	granted  int64
	got      []byte
	status   string
	gotEnd   bool
	gotReset bool
	code     http2.ErrCode
}

func (st *modelStream) closed() bool { return st.reset || st.gotReset || st.sentEnd && st.gotEnd }

// A model is a client that follows a program. It checks each frame that it receives: that it belongs to a stream in a state
// that permits it, and that the windows do. As long as the program is polite, each request must be answered rightly.
type model struct {
	t       testing.TB
	server  *modelServer
	conn    net.Conn
	polite  bool
	next    uint32
	resets  int
	granted int64 // of the connection's window
	enc     *hpack.Encoder
	block   bytes.Buffer
	out     bytes.Buffer
	*http2.Framer

	mu       sync.Mutex
	streams  map[uint32]*modelStream
	initial  int64 // of what the server may send
	highest  int64 // the highest initial
	window   int64 // of the connection, for what the client sends
	theirs   int64 // the server's initial window
	received int64
	greeted  bool
	acked    bool
	away     bool
	last     uint32
	code     http2.ErrCode
	ended    chan struct{}
	pings    int
	acks     int
	wrong    string
}

func newModel(t testing.TB, s *modelServer, conn net.Conn) *model {
	m := &model{t: t, server: s, conn: conn, polite: true, next: 1, streams: make(map[uint32]*modelStream),
		initial: flow.Initial, highest: flow.Initial, granted: flow.Initial, window: flow.Initial, theirs: flow.Initial,
		ended: make(chan struct{})}
	conn.SetDeadline(time.Now().Add(timeout))
	m.enc = hpack.NewEncoder(&m.block)
	m.Framer = http2.NewFramer(&m.out, nil)
	m.AllowIllegalWrites = true
	m.out.WriteString(http2.ClientPreface)
	m.WriteSettings()
	go m.receive()
	return m
}

func (m *model) flush() bool {
	_, err := m.out.WriteTo(m.conn)
	m.out.Reset()
	return err == nil
}

// receive reads what the server sends, until the connection ends.
func (m *model) receive() {
	defer close(m.ended)
	f := http2.NewFramer(nil, m.conn)
	f.ReadMetaHeaders = hpack.NewDecoder(initialTableSize, nil)
	for {
		fr, err := f.ReadFrame()
		if err != nil {
			if _, ok := err.(net.Error); !ok && err != io.EOF && err != io.ErrUnexpectedEOF {
				m.mu.Lock()
				m.fault("the server's frame: %v", err)
				m.mu.Unlock()
			}
			return
		}
		m.mu.Lock()
		m.frame(fr)
		m.mu.Unlock()
	}
}

func (m *model) fault(format string, args ...any) {
	m.wrong = cmp.Or(m.wrong, fmt.Sprintf(format, args...))
}

// frame handles a frame of the server.
func (m *model) frame(f http2.Frame) {
	id := f.Header().StreamID
	st := m.streams[id]
	if id != 0 && st == nil {
		if m.polite {
			m.fault("%v of a stream that was not opened", f)
		}
		return
	}
	switch f := f.(type) {
	case *http2.SettingsFrame:
		m.greeted = true
		if n, ok := f.Value(http2.SettingInitialWindowSize); ok {
			for _, st := range m.streams {
				st.window += int64(n) - m.theirs
			}
			m.theirs = int64(n)
		}
	case *http2.PingFrame:
		if m.acks++; m.polite && m.acks > m.pings {
			m.fault("%d acknowledgements of %d PING frames", m.acks, m.pings)
		}
	case *http2.GoAwayFrame:
		m.away, m.last, m.code = true, f.LastStreamID, f.ErrCode
	case *http2.WindowUpdateFrame:
		if id == 0 {
			m.window += int64(f.Increment)
		} else {
			st.window += int64(f.Increment)
		}
	case *http2.RSTStreamFrame:
		if st.gotReset && m.polite {
			m.fault("stream %d was reset twice", id)
		}
		st.gotReset, st.code = true, f.ErrCode
	case *http2.MetaHeadersFrame:
		if st.gotEnd || st.gotReset {
			m.fault("headers on stream %d after its end", id)
		}
		st.status, st.gotEnd = f.PseudoValue("status"), f.StreamEnded()
	case *http2.DataFrame:
		n := int64(len(f.Data()))
		m.received += n
		switch st.got = append(st.got, f.Data()...); {
		case st.gotEnd || st.gotReset || st.status == "":
			m.fault("data on stream %d before its headers or after its end", id)
		case int64(len(st.got)) > m.highest+st.granted:
			m.fault("stream %d: %d bytes in a window of %d", id, len(st.got), m.highest+st.granted)
		case m.received > m.granted:
			m.fault("%d bytes in a window of %d", m.received, m.granted)
		}
		st.gotEnd = f.StreamEnded()
	}
}

// open writes a request. With pieces it has CONTINUATION frames. A table of 0 or more is the size of the encoder's table
// from now on. It changes once before a header block, because package hpack does not read two changes.
// With connect it is an extended CONNECT request.
func (m *model) open(path string, connect, end, pieces bool, table int, more ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	open := 0
	for _, st := range m.streams {
		if !st.closed() {
			open++
		}
	}
	if m.polite && open >= modelStreams {
		return
	}
	m.block.Reset()
	if table >= 0 {
		m.enc.SetMaxDynamicTableSize(uint32(table))
	}
	fields := []string{":method", "POST", ":scheme", "http", ":authority", "x", ":path", path}
	if connect {
		fields[1] = "CONNECT"
		fields = append(fields, ":protocol", "any")
	}
	fields = append(fields, more...)
	for i := 0; i < len(fields); i += 2 {
		m.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	block := m.block.Bytes()
	first := len(block)
	if pieces {
		first = len(block) / 3
	}
	m.WriteHeaders(http2.HeadersFrameParam{StreamID: m.next, BlockFragment: block[:first], EndStream: end,
		EndHeaders: !pieces})
	if pieces {
		m.WriteContinuation(m.next, false, block[first:first])
		m.WriteContinuation(m.next, true, block[first:])
	}
	m.streams[m.next] = &modelStream{id: m.next, path: path, connect: connect, sentEnd: end,
		window: m.theirs}
	m.next += 2
}

// pick returns an open stream.
func (m *model) pick(arg byte) *modelStream {
	var open []*modelStream
	for _, id := range slices.Sorted(maps.Keys(m.streams)) {
		if st := m.streams[id]; !st.closed() {
			open = append(open, st)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return open[int(arg)%len(open)]
}

func (m *model) resetStream(st *modelStream) {
	st.reset = true
	m.WriteRSTStream(st.id, http2.ErrCodeCancel)
}

// grant raises the window of a stream, or of the connection if st is nil.
func (m *model) grant(st *modelStream, n uint32) {
	if st == nil {
		m.granted += int64(n)
		m.WriteWindowUpdate(0, n)
	} else if !st.reset {
		st.granted += int64(n)
		m.WriteWindowUpdate(st.id, n)
	}
}

// pause sends what was written, and gives the server time to park the connection.
func (m *model) pause() {
	m.flush()
	for end := time.Now().Add(20 * time.Millisecond); m.server.Stats().Parked == 0 && time.Now().Before(end); {
		await.Pause(time.Millisecond) // it holds if the connection is not parked
	}
}

// play follows a program. rude permits frames that a client must not send.
func (m *model) play(program []byte, rude bool) {
	pauses := 0
	take := func() (b byte) {
		if len(program) > 0 {
			b, program = program[0], program[1:]
		}
		return b
	}
	for len(program) > 0 {
		op, arg := take(), take()
		kinds := []string{"/echo", "/size?" + strconv.Itoa(int(arg)*int(arg)), "/hold", "/early"}
		switch op % 16 {
		case 0, 1:
			m.open(kinds[op>>4&3], op&64 != 0, arg&3 == 3, arg&4 != 0, -1)
		case 2: // HPACK: other tables, and entries that are evicted
			m.open(kinds[op>>4&3], op&64 != 0, arg&1 != 0, false, int(arg)*16,
				"a"+strconv.Itoa(int(arg)), strings.Repeat("v", int(arg)*4), "b", "c")
		default:
			m.mu.Lock()
			m.step(op, arg, take, rude)
			m.mu.Unlock()
		}
		switch op % 16 {
		case 9:
			if pauses++; pauses < 10 {
				m.pause()
			}
		case 10: // half a frame, and the rest after a pause
			if pauses++; pauses < 10 && m.out.Len() > 1 {
				half := int(arg) % m.out.Len()
				rest := bytes.Clone(m.out.Bytes()[half:])
				m.out.Truncate(half)
				m.pause()
				m.out.Write(rest)
			}
		}
	}
}

func (m *model) step(op, arg byte, take func() byte, rude bool) {
	st := m.pick(arg)
	switch op % 16 {
	case 3, 4:
		size := int64(arg) * int64(op>>2)
		pad := int64(0)
		if op&8 != 0 {
			pad = int64(arg) + 1
		}
		if st == nil || st.sentEnd || size+pad > min(st.window, m.window, wire.MaxSize) {
			return
		}
		data := pattern(int(size))
		st.sent = append(st.sent, data...)
		st.sentEnd = arg&7 == 7
		st.window -= size + pad
		m.window -= size + pad
		if pad > 0 {
			m.WriteDataPadded(st.id, st.sentEnd, data, make([]byte, pad-1))
		} else {
			m.WriteData(st.id, st.sentEnd, data)
		}
	case 5:
		if st != nil && !st.sentEnd && !st.connect {
			st.sentEnd = true
			m.block.Reset()
			m.enc.WriteField(hpack.HeaderField{Name: "mine", Value: "x"})
			m.WriteHeaders(http2.HeadersFrameParam{StreamID: st.id, BlockFragment: m.block.Bytes(),
				EndHeaders: true, EndStream: true})
		}
	case 6:
		if st != nil && m.resets < 4*modelStreams {
			m.resets++
			m.resetStream(st)
		}
	case 7:
		if op&16 == 0 {
			m.grant(nil, uint32(arg)+1)
		} else if st != nil {
			m.grant(st, uint32(arg)+1)
		}
	case 8:
		m.initial = []int64{0, 1, 100, flow.Initial, 1 << 20}[int(arg)%5]
		m.highest = max(m.highest, m.initial)
		m.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(m.initial)},
			http2.Setting{ID: http2.SettingHeaderTableSize, Val: uint32(arg) * 16})
	case 11:
		if m.greeted && !m.acked { // a program may use the server's settings before that
			m.acked = true
			m.WriteSettingsAck()
		}
		m.pings++
		m.WritePing(false, [8]byte{arg})
	case 12:
		if st != nil {
			m.WritePriority(st.id, http2.PriorityParam{StreamDep: uint32(arg) * 2, Weight: arg})
		}
		m.WriteRawFrame(http2.FrameType(20+arg%100), http2.Flags(arg), uint32(arg), pattern(int(arg)))
	case 13: // GOAWAY of both sides
		if arg&1 == 0 {
			m.WriteGoAway(0, http2.ErrCodeNo, nil)
			return
		}
		m.server.mu.Lock()
		var all []*conn
		for c := range m.server.conns {
			all = append(all, c)
		}
		m.server.mu.Unlock()
		for _, c := range all {
			if c.conn.RemoteAddr().String() == m.conn.LocalAddr().String() {
				c.goAway(false)
			}
		}
	case 14: // any frame
		if rude {
			m.polite = false
			kind, flags, id, size := take(), take(), take(), take()
			payload := make([]byte, size)
			for i := range payload {
				payload[i] = take()
			}
			for range 1 + arg>>3 {
				m.WriteRawFrame(http2.FrameType(kind%11), http2.Flags(flags), uint32(id), payload)
			}
		}
	case 15: // any bytes
		if rude {
			m.polite = false
			for range arg {
				m.out.WriteByte(take())
			}
		}
	}
}

// finish ends the requests that are open, and checks the answers.
func (m *model) finish() {
	defer func() {
		m.conn.Close()
		<-m.ended
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.wrong != "" {
			m.t.Error(m.wrong)
		}
	}()
	m.mu.Lock()
	polite := m.polite
	m.initial, m.highest = 1<<20, 1<<20
	m.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	m.grant(nil, 16<<20)
	for _, id := range slices.Sorted(maps.Keys(m.streams)) {
		st := m.streams[id]
		if st.closed() {
			continue
		}
		if st.path == "/hold" {
			m.resetStream(st)
		} else if !st.sentEnd {
			st.sentEnd = true
			m.WriteData(id, true, nil)
		}
	}
	m.mu.Unlock()
	sent := m.flush()
	if !polite {
		m.conn.(interface{ CloseWrite() error }).CloseWrite()
		for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end) && sent; await.Pause(time.Millisecond) {
			select {
			case <-m.ended:
				return
			default:
			}
		}
		return
	}
	until(m.t, "the requests are answered", func() bool {
		select {
		case <-m.ended:
			return true
		default:
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.wrong != "" {
			return true
		}
		for _, st := range m.streams {
			if !st.closed() && !(m.away && st.id > m.last) {
				return false
			}
		}
		return m.acks == m.pings || m.away
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.server.mu.Lock()
	refused := !m.greeted && m.server.closing // Shutdown came before the server has begun with the connection
	m.server.mu.Unlock()
	if refused {
		return
	}
	if m.code != http2.ErrCodeNo {
		m.t.Errorf("GOAWAY %v to a program without errors", m.code)
	}
	for _, st := range m.streams {
		m.check(st)
	}
}

// check checks the answer of a polite request.
func (m *model) check(st *modelStream) {
	if st.reset || m.away && st.id > m.last {
		return
	}
	want := []byte("early")
	if n, ok := strings.CutPrefix(st.path, "/size?"); ok {
		size, _ := strconv.Atoi(n)
		want = pattern(size)
	} else if st.path == "/echo" {
		want = st.sent
	}
	if st.status != "200" || !st.gotEnd || !bytes.Equal(st.got, want) || st.gotReset && st.code != http2.ErrCodeNo {
		m.t.Errorf("stream %d, %s: status %q, %d bytes, want %d, ended %t, reset %t %v, GOAWAY %t", st.id, st.path,
			st.status, len(st.got), len(want), st.gotEnd, st.gotReset, st.code, m.away)
	}
}

// frameProgram returns the program that sends frames as they are.
func frameProgram(frames []byte, repeat byte) (program []byte) {
	for len(frames) >= wire.HeaderSize {
		size := int(frames[0])<<16 | int(frames[1])<<8 | int(frames[2])
		size = min(size, 255, len(frames)-wire.HeaderSize)
		program = append(program, 14, repeat, frames[3], frames[4], byte(binary.BigEndian.Uint32(frames[5:])), byte(size))
		program = append(program, frames[wire.HeaderSize:wire.HeaderSize+size]...)
		frames = frames[min(wire.HeaderSize+int(frames[0])<<16|int(frames[1])<<8|int(frames[2]), len(frames)):]
	}
	return program
}
