package http2

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park/http2/internal/flow"
)

// A peer is a client that sends what frames a test wants.
type peer struct {
	*http2.Framer
	t     testing.TB
	conn  net.Conn
	out   bytes.Buffer
	block bytes.Buffer
	enc   *hpack.Encoder
}

// dial connects to a server of serve or serveUnix, and exchanges settings.
func dial(t testing.TB, url string) *peer {
	t.Helper()
	return newPeer(t, connect(t, url))
}

func newPeer(t testing.TB, conn net.Conn) *peer {
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(timeout))
	p := &peer{t: t, conn: conn}
	p.Framer = http2.NewFramer(&p.out, conn)
	p.AllowIllegalWrites = true
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.enc = hpack.NewEncoder(&p.block)
	p.out.WriteString(http2.ClientPreface)
	p.WriteSettings()
	p.WriteSettingsAck()
	return p
}

// send sends what was written.
func (p *peer) send() error {
	_, err := p.out.WriteTo(p.conn)
	return err
}

// fields encodes header fields.
func (p *peer) fields(fields ...string) []byte {
	p.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		p.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return p.block.Bytes()
}

// request writes a HEADERS frame.
func (p *peer) request(id uint32, end bool, more ...string) {
	fields := append([]string{":method", "POST", ":scheme", "http", ":authority", "x", ":path", "/"}, more...)
	p.openPart(id, end, true, fields...)
}

// target writes a HEADERS frame with another authority and path than that of request.
func (p *peer) target(authority, path string) {
	p.openPart(1, true, true, ":method", "POST", ":scheme", "http", ":authority", authority, ":path", path)
}

// next returns a description of the next frame that is not about settings or windows.
func (p *peer) next() string {
	p.t.Helper()
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return "the end"
		}
		switch f := f.(type) {
		case *http2.SettingsFrame, *http2.WindowUpdateFrame:
		case *http2.MetaHeadersFrame:
			return fmt.Sprintf("%d status %s", f.StreamID, f.PseudoValue("status"))
		case *http2.DataFrame:
			return fmt.Sprintf("%d data %q end %t", f.StreamID, f.Data(), f.StreamEnded())
		case *http2.RSTStreamFrame:
			return fmt.Sprintf("%d reset %v", f.StreamID, f.ErrCode)
		case *http2.GoAwayFrame:
			return fmt.Sprintf("goaway %d %v", f.LastStreamID, f.ErrCode)
		default:
			return f.Header().Type.String()
		}
	}
}

func (p *peer) want(what ...string) {
	p.t.Helper()
	for _, w := range what {
		if got := p.next(); got != w {
			p.t.Fatalf("got %s, want %s", got, w)
		}
	}
}

// Requests arrive in pieces of each length, and the connection is parked between any two: nothing is lost, and a parked
// connection holds the part of a frame.
func TestPieces(t *testing.T) {
	s := &Server{Linger: -1, Server: handler(echo)}
	url := serve(t, s, false)
	p := dial(t, url)
	p.request(1, false)
	p.WriteData(1, false, []byte("ab"))
	p.WriteDataPadded(1, true, []byte("c"), make([]byte, 5))
	block := p.fields(":method", "GET", ":scheme", "http", ":authority", "x", ":path", "/", "long", strings.Repeat("y", 30))
	p.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: block[:5], EndStream: true})
	p.WriteContinuation(3, false, nil)
	p.WriteContinuation(3, false, block[5:6])
	p.WriteContinuation(3, true, block[6:])
	all := bytes.Clone(p.out.Bytes())
	for _, size := range []int{1, 7} {
		p = dial(t, url)
		p.out.Reset()
		for at := 0; at < len(all); at += size {
			p.out.Write(all[at:min(at+size, len(all))])
			must(t, p.send())
			if (at/size)%10 == 0 {
				until(t, "the connection is parked", func() bool { return s.Stats().Parked > 0 })
			}
		}
		got := []string{p.next(), p.next(), p.next()} // the handlers run concurrently
		slices.Sort(got)
		if want := []string{`1 data "abc" end true`, "1 status 200", "3 status 200"}; !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		p.conn.Close()
		until(t, "the connection has ended", func() bool { return s.Stats().Parked <= 1 })
	}
}

// Errors of the client end its stream or its connection with the code that RFC 9113 asks for. Other streams go on.
func TestErrors(t *testing.T) {
	s := &Server{Server: handler(echo)}
	s.Server.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 100}
	s.Server.MaxHeaderBytes = 1000
	url := serve(t, s, false)
	protocol := "1 reset PROTOCOL_ERROR"
	for _, c := range []struct {
		name string
		send func(p *peer)
		want string
	}{
		{"connection header", func(p *peer) { p.request(1, true, "connection", "close") }, protocol},
		{"te", func(p *peer) { p.request(1, true, "te", "gzip") }, protocol},
		{"upper case", func(p *peer) { p.request(1, true, "Upper", "x") }, protocol},
		{"method", func(p *peer) {
			b := p.fields(":method", "G T", ":scheme", "http", ":path", "/")
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b, EndStream: true, EndHeaders: true})
		}, protocol},
		{"value with a space before it", func(p *peer) { p.request(1, true, "a", " b") }, protocol},
		{"value with a tab after it", func(p *peer) { p.request(1, true, "a", "b\t") }, protocol},
		{"trailer with a space after it", func(p *peer) {
			p.request(1, false)
			b := p.fields("a", "b ")
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b, EndStream: true, EndHeaders: true})
		}, protocol},
		{"upgrade as a trailer", func(p *peer) {
			p.request(1, false)
			b := p.fields("upgrade", "x")
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b, EndStream: true, EndHeaders: true})
		}, protocol},
		{"another host", func(p *peer) { p.request(1, true, "host", "y") }, protocol},
		{"two hosts", func(p *peer) { p.request(1, true, "host", "x", "host", "x") }, protocol},
		{"authority with a user", func(p *peer) { p.target("user@x", "/") }, protocol},
		{"authority with a path", func(p *peer) { p.target("x/y", "/") }, protocol},
		{"path with a scheme", func(p *peer) { p.target("x", "http://y/") }, protocol},
		{"path without a slash", func(p *peer) { p.target("x", "y") }, protocol},
		{"connect with a path", func(p *peer) {
			b := p.fields(":method", "CONNECT", ":authority", "x:1", ":path", "/")
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b, EndStream: true, EndHeaders: true})
		}, protocol},
		{"two lengths", func(p *peer) { p.request(1, false, "content-length", "1", "content-length", "2") }, protocol},
		{"length without body", func(p *peer) { p.request(1, true, "content-length", "1") }, protocol},
		{"more than the length", func(p *peer) {
			p.request(1, false, "content-length", "1")
			p.WriteData(1, true, []byte("ab"))
		}, protocol},
		{"less than the length", func(p *peer) {
			p.request(1, false, "content-length", "3")
			p.WriteData(1, true, []byte("ab"))
		}, protocol},
		{"pseudo header in trailers", func(p *peer) {
			p.request(1, false)
			p.request(1, true)
		}, protocol},
		{"trailers without the end", func(p *peer) {
			p.request(1, false)
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.fields("a", "b"), EndHeaders: true})
		}, protocol},
		{"stream window", func(p *peer) {
			p.request(1, false)
			p.WriteData(1, true, make([]byte, 101))
		}, "1 reset FLOW_CONTROL_ERROR"},
		{"window too large", func(p *peer) {
			p.request(1, false)
			p.WriteWindowUpdate(1, flow.Max)
		}, "1 reset FLOW_CONTROL_ERROR"},
		{"headers too large", func(p *peer) { p.request(1, true, "a", strings.Repeat("x", 1300)) }, "1 status 431"},
		{"CONTINUATION of another stream", func(p *peer) {
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.fields("a", "b")})
			p.WriteContinuation(3, true, nil)
		}, "goaway 0 PROTOCOL_ERROR"},
		{"CONTINUATION flood", func(p *peer) {
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.fields("a", "b")})
			for range 3000 {
				p.WriteContinuation(1, false, nil)
			}
		}, "goaway 0 ENHANCE_YOUR_CALM"},
		{"HPACK", func(p *peer) {
			p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff}, EndHeaders: true})
		}, "goaway 0 COMPRESSION_ERROR"},
		{"frame size", func(p *peer) {
			p.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, largeIn))
		}, "goaway 0 FRAME_SIZE_ERROR"},
		{"even stream", func(p *peer) { p.request(2, true) }, "goaway 0 PROTOCOL_ERROR"},
		{"idle stream", func(p *peer) { p.WriteRSTStream(1, 0) }, "goaway 0 PROTOCOL_ERROR"},
		{"settings acknowledged twice", func(p *peer) { p.WriteSettingsAck() }, "goaway 0 PROTOCOL_ERROR"},
		{"PUSH_PROMISE", func(p *peer) {
			p.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true})
		}, "goaway 0 PROTOCOL_ERROR"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := dial(t, url)
			c.send(p)
			p.send()
			p.want(c.want)
			if strings.HasPrefix(c.want, "goaway") {
				p.want("the end")
				return
			}
			if strings.HasSuffix(c.want, "431") {
				p.next() // the body
			}
			p.request(5, false)
			p.WriteData(5, true, []byte("x"))
			must(t, p.send())
			p.want("5 status 200", `5 data "x" end true`)
		})
	}
}

// A client that opens streams and resets them at once does not get more handlers than MaxConcurrentStreams, and is
// refused when too many requests wait (CVE-2023-44487).
func TestRapidReset(t *testing.T) {
	const most = 10
	var running, highest atomic.Int64
	release := make(chan bool)
	s := &Server{Server: handler(func(w http.ResponseWriter, r *http.Request) {
		n := running.Add(1)
		for old := highest.Load(); n > old && !highest.CompareAndSwap(old, n); old = highest.Load() {
		}
		<-release
		running.Add(-1)
	})}
	s.Server.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: most}
	url := serve(t, s, false)
	p := dial(t, url)
	for i := range uint32(100) {
		p.request(2*i+1, true)
		p.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
	}
	must(t, p.send())
	p.want(fmt.Sprintf("goaway %d ENHANCE_YOUR_CALM", 2*5*most+1))
	close(release)
	until(t, "the handlers have returned", func() bool { return running.Load() == 0 })
	if h := highest.Load(); h > most {
		t.Errorf("%d handlers ran at once", h)
	}
}

// A client that does not read, and makes the server queue answers, is closed when they reach a bound.
func TestFloods(t *testing.T) {
	for _, kind := range []string{"PING", "SETTINGS", "reset"} {
		t.Run(kind, func(t *testing.T) {
			s := &Server{Server: handler(echo)}
			p := dial(t, serveUnix(t, s))
			p.conn.SetDeadline(time.Now().Add(timeout))
			for id := uint32(1); ; {
				for range 1000 {
					switch kind {
					case "PING":
						p.WritePing(false, [8]byte{})
					case "SETTINGS":
						p.WriteSettings()
					default:
						p.request(id, true, "te", "x")
						id += 2
					}
				}
				if err := p.send(); isTimeout(err) {
					t.Fatal("the connection is not closed")
				} else if err != nil {
					break
				}
			}
			until(t, "the connection has ended", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return len(s.conns) == 0
			})
		})
	}
}

// Windows of one byte, and none, hold a response back without loss. WriteTimeout ends a stream whose client takes nothing.
func TestSmallWindows(t *testing.T) {
	s := &Server{Server: handler(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "abc") })}
	url := serve(t, s, false)
	p := dial(t, url)
	p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	p.request(1, true)
	must(t, p.send())
	p.want("1 status 200", `1 data "a" end false`)
	p.WriteWindowUpdate(1, 1)
	must(t, p.send())
	p.want(`1 data "b" end false`)
	p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 2})
	must(t, p.send())
	p.want(`1 data "c" end true`)

	hs := handler(s.Server.Handler.ServeHTTP)
	hs.WriteTimeout = 20 * time.Millisecond
	p = dial(t, serve(t, &Server{Server: hs}, false))
	p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	p.request(1, true)
	must(t, p.send())
	p.want("1 status 200", "1 reset INTERNAL_ERROR")
}

// A client that stops in the middle of the preface, or of a frame, is closed after a timeout, parked or not.
func TestHalfFrameTimeout(t *testing.T) {
	for _, linger := range []time.Duration{-1, 0, time.Hour} {
		hs := handler(echo)
		hs.ReadHeaderTimeout = 30 * time.Millisecond
		p := dial(t, serve(t, &Server{Server: hs, Linger: linger}, false))
		p.WritePing(false, [8]byte{})
		p.out.Write([]byte{0, 0, 8, byte(http2.FramePing), 0})
		must(t, p.send())
		p.want("PING", "goaway 0 NO_ERROR", "the end")
	}
}

// The same holds for a connection that cannot be parked, although it was idle before.
func TestHalfFrameUnparkable(t *testing.T) {
	hs := handler(echo)
	hs.ReadHeaderTimeout = 30 * time.Millisecond
	s := &Server{Server: hs, Linger: -1}
	serve(t, s, false)
	theirs, ours := net.Pipe()
	must(t, s.ServeConn(t.Context(), ours))
	p := newPeer(t, theirs)
	p.synced()
	until(t, "the server has tried to park the connection", func() bool { return s.Stats().Unparkable == 1 })
	await.Pause(20 * time.Millisecond) // so that it mostly reads without a deadline; the result must be the same if it does not
	p.out.Write([]byte{0, 0, 8, byte(http2.FramePing), 0})
	must(t, p.send())
	p.want("goaway 0 NO_ERROR", "the end")
}
