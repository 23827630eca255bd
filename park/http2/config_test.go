package http2

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park/http2/internal/flow"
	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

// configured starts a server in clear text with settings of HTTP/2.
func configured(t *testing.T, c http.HTTP2Config, h http.HandlerFunc) (*Server, *peer) {
	hs := handler(h)
	hs.HTTP2 = &c
	s := &Server{Server: hs, Linger: -1}
	return s, dial(t, serve(t, s, false))
}

// settings returns the server's settings, and the window of the connection, which it announces at once.
func (p *peer) settings() (map[http2.SettingID]uint32, uint32) {
	p.t.Helper()
	got, window := make(map[http2.SettingID]uint32), uint32(flow.Initial)
	must(p.t, p.send())
	for {
		f, err := p.ReadFrame()
		must(p.t, err)
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if f.IsAck() {
				return got, window
			}
			f.ForeachSetting(func(s http2.Setting) error {
				got[s.ID] = s.Val
				return nil
			})
		case *http2.WindowUpdateFrame:
			window += f.Increment
		}
	}
}

// Sizes and numbers are announced as configured, and by default if they are not valid.
func TestConfigSettings(t *testing.T) {
	defaults := http.HTTP2Config{MaxConcurrentStreams: defaultStreams, MaxDecoderHeaderTableSize: initialTableSize,
		MaxReadFrameSize: largeIn - wire.HeaderSize, MaxReceiveBufferPerConnection: defaultWindow,
		MaxReceiveBufferPerStream: defaultWindow}
	valid := http.HTTP2Config{MaxConcurrentStreams: 7, MaxDecoderHeaderTableSize: 100, MaxReadFrameSize: 1<<24 - 1,
		MaxReceiveBufferPerConnection: 100_000, MaxReceiveBufferPerStream: 50_000}
	for _, c := range []struct{ in, want http.HTTP2Config }{
		{http.HTTP2Config{}, defaults},
		{valid, valid},
		{http.HTTP2Config{MaxConcurrentStreams: -1, MaxDecoderHeaderTableSize: 4 << 20, MaxReadFrameSize: 1 << 24,
			MaxReceiveBufferPerConnection: 60_000, MaxReceiveBufferPerStream: 4 << 20}, defaults},
	} {
		_, p := configured(t, c.in, echo)
		got, window := p.settings()
		for id, want := range map[http2.SettingID]int{
			http2.SettingMaxConcurrentStreams: c.want.MaxConcurrentStreams,
			http2.SettingHeaderTableSize:      c.want.MaxDecoderHeaderTableSize,
			http2.SettingMaxFrameSize:         c.want.MaxReadFrameSize,
			http2.SettingInitialWindowSize:    c.want.MaxReceiveBufferPerStream,
		} {
			if got[id] != uint32(want) {
				t.Errorf("%v: %d, want %d", id, got[id], want)
			}
		}
		if window != uint32(c.want.MaxReceiveBufferPerConnection) {
			t.Errorf("window of the connection %d, want %d", window, c.want.MaxReceiveBufferPerConnection)
		}
	}
}

// Frames up to MaxReadFrameSize are received, also in pieces with the connection parked between them, and none above it.
func TestMaxReadFrameSize(t *testing.T) {
	const size = 100_000
	s, p := configured(t, http.HTTP2Config{MaxReadFrameSize: size}, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	})
	p.settings()
	p.request(1, false)
	p.WriteData(1, true, make([]byte, size))
	must(t, p.send())
	p.want("1 status 200", `1 data "100000 <nil>" end true`)
	p.WriteData(1, true, make([]byte, size)) // of a stream that has ended
	whole := slices.Clone(p.out.Bytes())
	p.out.Reset()
	for _, part := range [][]byte{whole[:5], whole[5:60_000], whole[60_000:]} {
		until(t, "the connection is parked", func() bool { return s.Stats().Parked == 1 })
		p.out.Write(part)
		must(t, p.send())
	}
	p.want("1 reset STREAM_CLOSED")
	p.out.Write([]byte{0, 0x86, 0xa1, byte(http2.FrameData), 0, 0, 0, 0, 1}) // 34,465 bytes: as yet allowed
	must(t, p.send())
	p.conn.Write(make([]byte, 0x86a1))
	p.out.Write([]byte{1, 0x86, 0xa1, byte(http2.FrameData), 0, 0, 0, 0, 1}) // 100,001
	must(t, p.send())
	p.want("goaway 1 FRAME_SIZE_ERROR")
}

// With MaxEncoderHeaderTableSize the headers of responses that repeat are sent as references to a table, as large as the
// client allows, and the client that has an own decoder for the connection gets them right.
func TestMaxEncoderHeaderTableSize(t *testing.T) {
	value := strings.Repeat("v", 100)
	for _, c := range []struct {
		ours, theirs int
		small        bool // the second response has a short block
	}{{0, -1, false}, {4096, -1, true}, {200, -1, true}, {1 << 20, 1 << 20, true}, {4096, 0, false}, {1, -1, false}} {
		config := http.HTTP2Config{MaxEncoderHeaderTableSize: c.ours}
		s, p := configured(t, config, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Date"] = nil
			w.Header().Set("X-Value", value)
		})
		if c.theirs >= 0 {
			p.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: uint32(c.theirs)})
			p.ReadMetaHeaders.SetMaxDynamicTableSize(uint32(c.theirs))
			p.ReadMetaHeaders.SetAllowedMaxDynamicTableSize(uint32(c.theirs))
		}
		var sizes []uint32
		for id := uint32(1); id < 10; id += 2 {
			p.request(id, true)
			must(t, p.send())
			for {
				f, err := p.ReadFrame()
				must(t, err)
				if h, ok := f.(*http2.MetaHeadersFrame); ok {
					sizes = append(sizes, h.Header().Length)
					if !slices.ContainsFunc(h.RegularFields(), func(f hpack.HeaderField) bool {
						return f.Name == "x-value" && f.Value == value
					}) {
						t.Errorf("%+v: fields %v", c, h.RegularFields())
					}
					break
				}
			}
			until(t, "the connection is parked", func() bool { return s.Stats().Parked == 1 })
		}
		if last := sizes[len(sizes)-1]; last < 20 != c.small {
			t.Errorf("%+v: header blocks of %d bytes", c, sizes)
		}
	}
}

// A connection gets a PING when it was silent for SendPingTimeout, parked or with an open stream; it goes on if that is
// answered, and ends if it is not answered for PingTimeout.
func TestPings(t *testing.T) {
	t.Parallel() // it waits
	var mu sync.Mutex
	var counted []string
	var both sync.WaitGroup
	for _, open := range []bool{false, true} {
		release := make(chan bool)
		_, p := configured(t, http.HTTP2Config{SendPingTimeout: 5 * time.Millisecond, PingTimeout: 3 * time.Second,
			CountError: func(name string) {
				mu.Lock()
				defer mu.Unlock()
				counted = append(counted, name)
			}}, func(w http.ResponseWriter, r *http.Request) { <-release })
		p.settings()
		if open {
			p.request(1, true)
			must(t, p.send())
		}
		both.Go(func() {
			defer close(release)
			answerThree(t, p)
		})
	}
	both.Wait()
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(counted, []string{"conn_close_lost_ping", "conn_close_lost_ping"}) {
		t.Errorf("counted %q", counted)
	}
}

// answerThree answers three PINGs, and then no more.
func answerThree(t *testing.T, p *peer) {
	for pings := 0; pings < 4; {
		f, err := p.ReadFrame()
		if err != nil {
			t.Error(err)
			return
		}
		if ping, ok := f.(*http2.PingFrame); ok && !ping.IsAck() {
			if pings++; pings < 4 {
				p.WritePing(true, ping.Data)
				p.send()
			}
		}
	}
	for {
		f, err := p.ReadFrame()
		if err != nil || f.Header().Type == http2.FrameGoAway {
			break
		}
		if f.Header().Type == http2.FramePing {
			t.Error("another PING without an answer to the last")
		}
	}
}

// A client that takes nothing for WriteByteTimeout loses its connection. One that takes a little now and then does not.
func TestWriteByteTimeout(t *testing.T) {
	t.Parallel() // it waits
	for _, reads := range []bool{false, true} {
		const size = 1 << 20
		failed := make(chan error, 1)
		config := http.HTTP2Config{WriteByteTimeout: 2 * time.Second}
		_, p := configured(t, config, func(w http.ResponseWriter, r *http.Request) {
			var err error
			for sent := 0; err == nil && (sent < 16*size); sent += size {
				_, err = w.Write(make([]byte, size))
			}
			failed <- err
		})
		p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
		p.WriteWindowUpdate(0, 1<<30)
		p.request(1, true)
		must(t, p.send())
		if reads {
			go io.Copy(io.Discard, p.conn)
		}
		if err := <-failed; (err == nil) != reads {
			t.Errorf("the client reads: %t; writing: %v", reads, err)
		}
	}
}

// A cipher suite of TLS 1.2 that RFC 9113 forbids is refused, unless it is permitted.
func TestProhibitedCipherSuite(t *testing.T) {
	_, trust := certificate()
	for _, permit := range []bool{false, true} {
		hs := handler(echo)
		hs.HTTP2 = &http.HTTP2Config{PermitProhibitedCipherSuites: permit}
		suites := []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA}
		s := &Server{Server: hs}
		url := serve(t, s, true)
		conn, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), &tls.Config{
			RootCAs: trust, ServerName: "127.0.0.1",
			NextProtos: []string{"h2"}, MaxVersion: tls.VersionTLS12, CipherSuites: suites,
		})
		must(t, err)
		conn.SetDeadline(time.Now().Add(timeout))
		io.WriteString(conn, preface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		if _, err := io.ReadFull(conn, make([]byte, 9)); (err == nil) != permit {
			t.Errorf("permitted: %t; the client reads: %v", permit, err)
		}
		conn.Close()
	}
}

// Errors are counted by name, for those that net/http counts by its names.
func TestCountError(t *testing.T) {
	for _, c := range []struct {
		name string
		send func(p *peer)
	}{
		{"headers_even", func(p *peer) { p.request(2, true) }},
		{"stream_went_down", func(p *peer) { p.request(3, true); p.request(1, true) }},
		{"priority", func(p *peer) { p.WritePriority(1, http2.PriorityParam{StreamDep: 1}) }},
		{"reset_idle_stream", func(p *peer) { p.WriteRSTStream(1, http2.ErrCodeCancel) }},
		{"stream_idle", func(p *peer) { p.WriteWindowUpdate(1, 1) }},
		{"bad_flow", func(p *peer) { p.request(1, false); p.WriteWindowUpdate(1, 1<<31-1) }},
		{"data_on_idle", func(p *peer) { p.WriteData(1, true, nil) }},
		{"ack_mystery", func(p *peer) { p.WriteSettingsAck() }},
		{"push_promise", func(p *peer) {
			p.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true})
		}},
		{"send_too_much", func(p *peer) {
			p.request(1, false, "content-length", "1")
			p.WriteData(1, true, []byte("ab"))
		}},
		{"trailers_not_ended", func(p *peer) { p.request(1, false); p.request(1, false) }},
		{"malformed_request", func(p *peer) { p.request(1, true, "connection", "close") }},
		{"frame_ping", func(p *peer) { p.WriteRawFrame(http2.FramePing, 0, 0, []byte("x")) }},
		{"frame_size_or_order", func(p *peer) { p.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, largeIn)) }},
	} {
		counted := make(chan string, 10)
		release := make(chan bool)
		_, p := configured(t, http.HTTP2Config{CountError: func(name string) { counted <- name }},
			func(w http.ResponseWriter, r *http.Request) { <-release })
		t.Cleanup(func() { close(release) })
		p.settings()
		c.send(p)
		p.send()
		if got := await.Receive(t, c.name+" is counted", counted); got != c.name {
			t.Errorf("counted %q, want %q", got, c.name)
		}
	}
}

// A client that has not acknowledged the server's settings may send more than the stream's window has by them. It can still
// end the stream by an empty frame.
func TestEndInNegativeWindow(t *testing.T) {
	proceed := make(chan bool)
	s := &Server{Server: handler(func(w http.ResponseWriter, r *http.Request) {
		<-proceed
		echo(w, r)
	})}
	s.Server.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 100}
	p := dial(t, serve(t, s, false))
	p.out.Reset()
	p.out.WriteString(http2.ClientPreface)
	p.WriteSettings()
	p.request(1, false)
	p.WriteData(1, false, pattern(1000))
	p.WriteSettingsAck()
	p.WriteData(1, true, nil)
	p.synced()
	close(proceed)
	p.want("1 status 200", fmt.Sprintf("1 data %q end true", pattern(1000)))
}
