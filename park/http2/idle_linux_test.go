package http2

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/tunnel"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/socknotify/socknotify/internal/test/idling"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/sse"
	"github.com/socknotify/socknotify/websocket"
)

func playRole() bool {
	return idling.Roles{"server": playServer, "clients": playClients, "abused": playAbused,
		"readers": playReaders, "host": playHost, "rare load": playRareLoad}.Play()
}

// The headers of a request by Go's client, of one by a browser, and of a browser's for a WebSocket.
var (
	goHeaders = []string{":authority", "127.0.0.1:12345", ":method", "GET", ":path", "/", ":scheme", "http",
		"accept-encoding", "gzip", "user-agent", "Go-http-client/2.0"}
	browserHeaders = []string{":method", "GET", ":authority", "www.example.com", ":scheme", "https",
		":path", "/app/index.html",
		"sec-ch-ua", `"Chromium";v="140", "Not=A?Brand";v="24"`, "sec-ch-ua-mobile", "?0", "sec-ch-ua-platform", `"Linux"`,
		"upgrade-insecure-requests", "1",
		"user-agent",
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
		"accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8",
		"sec-fetch-site", "none", "sec-fetch-mode", "navigate", "sec-fetch-user", "?1", "sec-fetch-dest", "document",
		"accept-encoding", "gzip, deflate, br, zstd", "accept-language", "en-US,en;q=0.9",
		"cookie", "session=0123456789abcdef0123456789abcdef", "priority", "u=0, i"}
	socketHeaders = []string{":method", "CONNECT", ":authority", "www.example.com", ":scheme", "https",
		":path", "/app/socket", ":protocol", "websocket",
		"pragma", "no-cache", "cache-control", "no-cache",
		"user-agent",
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
		"origin", "https://www.example.com", "sec-websocket-version", "13",
		"accept-encoding", "gzip, deflate, br, zstd", "accept-language", "en-US,en;q=0.9",
		"cookie", "session=0123456789abcdef0123456789abcdef",
		"sec-websocket-extensions", "permessage-deflate; client_max_window_bits"}
	tunnelHeaders = []string{":method", "CONNECT", ":authority", "www.example.com:443",
		"user-agent",
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"}
)

// hostEnv has the address to which the tunnels of the role "server" connect.
const hostEnv = "SOCKNOTIFY_TUNNEL_HOST"

// An idle connection of park.HTTPServer, after a request by headers of Go's client or of a browser, needs no more live bytes
// than this. What one of net/http needs is logged beside it.
func TestIdleMemory(t *testing.T) {
	if raceDetector {
		t.Skip("the memory of the race detector would be included")
	}
	if testing.Short() {
		t.Skip("5,000 connections")
	}
	idling.Enough(t)
	for _, c := range []struct {
		kind, headers string
		most          float64
	}{{"h2c", "go", 2500}, {"h2c", "browser", 3500}, {"tls", "go", 2600}, {"tls", "browser", 3700}} {
		u := idling.Measure(t, "http2 "+c.kind, c.kind, c.headers)
		t.Logf("%s, %s: %.0f live bytes, %d of them stack", c.kind, c.headers, u.Live(), u.Stack/int64(idling.Conns))
		if c.headers == "go" { // BenchmarkIdle has the others
			stock := idling.Measure(t, "net/http "+c.kind, c.kind, c.headers)
			t.Logf("net/http: %.0f, %d of them stack", stock.Live(), stock.Stack/int64(idling.Conns))
		}
		if u.Live() > c.most {
			t.Errorf("%s, %s: %.0f live bytes, want at most %.0f", c.kind, c.headers, u.Live(), c.most)
		}
	}
}

// A connection with one open stream needs no more live bytes than this, and neither does a further
// stream: one of package sse, a WebSocket, or a request that waits, which keeps its head.
func TestIdleStreams(t *testing.T) {
	if raceDetector {
		t.Skip("the memory of the race detector would be included")
	}
	if testing.Short() {
		t.Skip("5,000 connections, twelve times")
	}
	idling.Enough(t)
	head := float64(len(strings.Join(browserHeaders, "")))
	for _, c := range []struct {
		what, headers string
		h2c, aFurther float64
	}{{"events", "browser", 3700, 500}, {"sockets", "socket", 3700, 550},
		{"waiting", "browser", 4300, 500 + head}} {
		for kind, most := range map[string]float64{"h2c": c.h2c, "tls": 4200} {
			one := idling.Measure(t, c.what+" 1 "+kind, kind, c.headers, "1", c.what)
			many := idling.Measure(t, c.what+" 11 "+kind, kind, c.headers, "11", c.what)
			further := (many.Live() - one.Live()) / 10
			t.Logf("%s, %s: %.0f live bytes, %d of them stack; a further stream %.0f", c.what, kind,
				one.Live(), one.Stack/int64(idling.Conns), further)
			if one.Live() > most || further > c.aFurther {
				t.Errorf("%s, %s: want at most %.0f live bytes, and %.0f", c.what, kind, most, c.aFurther)
			}
		}
	}
}

// A connection with one tunnel needs no more live bytes than this, with its backend's connection, and
// neither does a further tunnel.
func TestIdleTunnels(t *testing.T) {
	if raceDetector {
		t.Skip("the memory of the race detector would be included")
	}
	if testing.Short() {
		t.Skip("5,000 connections, four times")
	}
	idling.Descriptors(t, 3*idling.Conns) // one for each tunnel, too
	measure := func(kind string, tunnels int) (u idling.Usage) {
		t.Run(fmt.Sprint(kind, tunnels), func(t *testing.T) { // it ends the processes
			t.Setenv(hostEnv, idling.Start(t, "host").Say(""))
			u = idling.Measure(t, fmt.Sprintf("tunnels %d %s", tunnels, kind), kind, "tunnel",
				strconv.Itoa(tunnels), "tunnels")
		})
		return u
	}
	for kind, most := range map[string]float64{"h2c": 3500, "tls": 4200} {
		one, two := measure(kind, 1), measure(kind, 2)
		further := two.Live() - one.Live()
		t.Logf("%s: %.0f live bytes, %d of them stack; a further tunnel %.0f", kind, one.Live(),
			one.Stack/int64(idling.Conns), further)
		if one.Live() > most || further > 1200 {
			t.Errorf("%s: want at most %.0f live bytes, and 1200", kind, most)
		}
	}
}

// playHost accepts connections, and reads from them.
func playHost([]string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			if conn, err := ln.Accept(); err == nil {
				go io.Copy(io.Discard, conn)
			}
		}
	}()
	idling.Serve(ln, nil)
}

// BenchmarkIdle measures the memory of a server process for each idle connection, also with net/http.
func BenchmarkIdle(b *testing.B) {
	for _, server := range []string{"http2", "net/http"} {
		for _, kind := range []string{"h2c", "tls"} {
			for _, headers := range []string{"go", "browser"} {
				b.Run(server+"/"+kind+"/"+headers, func(b *testing.B) {
					for b.Loop() {
						idling.Measure(b, server+" "+kind, kind, headers).Report(b)
					}
				})
			}
		}
	}
}

// BenchmarkWake measures a request on a connection that asks once in two seconds.
func BenchmarkWake(b *testing.B) {
	for _, kind := range []string{"h2c", "tls"} {
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				idling.CompareWakes(b, "net/http "+kind, "http2 "+kind, kind)
			}
		})
	}
}

func playRareLoad(args []string) {
	idling.RareLoad(func() (ask func() error, err error) {
		conn, err := dialServer(args[0], args[1])
		if err == nil {
			err = request(conn, goHeaders, 1, true, endsStream)
		}
		f, next := http2.NewFramer(conn, conn), uint32(1)
		return func() error {
			next += 2
			block := []byte("\x82\x86\x84\x01\x09localhost") // GET http / and an :authority that is not indexed
			if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: next, BlockFragment: block,
				EndStream: true, EndHeaders: true}); err != nil {
				return err
			}
			for {
				fr, err := f.ReadFrame()
				if err != nil || endsStream(fr.Header()) {
					return err
				}
			}
		}, err
	})
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }

func playServer(args []string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	at := strings.LastIndexByte(args[0], ' ')
	name, kind := args[0][:at], args[0][at+1:]
	hs := handler(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/up":
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n, err)
		case "/down":
			for left := largeBody; left > 0; left -= len(zeros) {
				w.Write(zeros[:])
			}
		default:
			hello(w, r)
		}
	})
	hs.Protocols = new(http.Protocols)
	hs.Protocols.SetHTTP2(true)
	hs.Protocols.SetUnencryptedHTTP2(true)
	cert, _ := certificate()
	hs.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}}
	var s httpServer = hs
	settled := func() int { return idling.Conns }
	if name != "net/http" {
		p := &park.HTTPServer{Server: hs, HTTP2: &Server{ExtendedConnect: true}}
		s, settled = p, func() int { return p.Stats().Parked }
	}
	if what, streams, ok := strings.Cut(name, " "); ok {
		n, err := strconv.Atoi(streams)
		if err != nil {
			panic(err)
		}
		p := s.(*park.HTTPServer)
		var open func() int
		hs.Handler, open = serveStreams(what, p)
		settled = func() int { return min(p.Stats().Parked, open()/n) }
	}
	if kind == "h2c" {
		go s.Serve(ln)
	} else {
		go s.ServeTLS(ln, "", "")
	}
	idling.Serve(ln, settled)
}

// serveStreams returns the handler for streams of a kind, and how many are open.
func serveStreams(what string, p *park.HTTPServer) (h http.Handler, open func() int) {
	switch what {
	case "events":
		events := &sse.Server{Heartbeat: time.Hour}
		return events, func() int { return events.Stats().Parked }
	case "sockets":
		sockets := &websocket.Server{PingInterval: time.Hour,
			OnMessage: func(*websocket.Conn, websocket.Kind, []byte) error { return nil }}
		return sockets, func() int { return sockets.Stats().Parked }
	case "tunnels":
		var tunnels tunnel.Tunnels
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			backend, err := net.Dial("tcp", os.Getenv(hostEnv))
			if err == nil {
				_, err = tunnels.JoinResponse(w, backend, tunnel.Options{})
			}
			if err != nil {
				panic(err)
			}
		}), func() int { return tunnels.Stats().Parked / 2 }
	default:
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := park.Suspend(w, r, func(*park.Suspended) {},
				func(w http.ResponseWriter, r *http.Request, _ *park.Suspended) { hello(w, r) }); err != nil {
				panic(err)
			}
		}), func() int { return p.Stats().Suspended }
	}
}

const largeBody = 64 << 20 // bytes

var zeros [32 << 10]byte

// playClients sends one request on each connection, and keeps nothing of a connection but the socket, or TLS.
func playClients(args []string) {
	idling.Connect(func() (net.Conn, error) {
		conn, err := dialServer(args[0], args[1])
		if err != nil {
			return nil, err
		}
		headers := map[string][]string{
			"go": goHeaders, "browser": browserHeaders, "socket": socketHeaders,
			"tunnel": tunnelHeaders}[args[2]]
		answered := endsStream
		streams := 1
		if len(args) > 3 {
			if streams, err = strconv.Atoi(args[3]); err != nil {
				return nil, err
			}
			answered = map[string]func(http2.FrameHeader) bool{
				"events":  func(h http2.FrameHeader) bool { return h.Type == http2.FrameData },
				"sockets": func(h http2.FrameHeader) bool { return h.Type == http2.FrameHeaders },
				"tunnels": func(h http2.FrameHeader) bool { return h.Type == http2.FrameHeaders },
			}[args[4]]
		}
		return conn, request(conn, headers, streams, args[2] != "socket" && args[2] != "tunnel", answered)
	})
}

func dialServer(address, kind string) (net.Conn, error) {
	conn, err := net.Dial("tcp", address)
	if err == nil && kind == "tls" {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	}
	return conn, err
}

func endsStream(h http2.FrameHeader) bool {
	return h.Type == http2.FrameData && h.Flags.Has(http2.FlagDataEndStream)
}

// request opens streams with one request each, and waits until each is answered, unless answered is
// nil. end says whether the requests end.
func request(conn net.Conn, headers []string, streams int, end bool,
	answered func(http2.FrameHeader) bool) error {
	var out, block bytes.Buffer
	f := http2.NewFramer(&out, conn)
	enc := hpack.NewEncoder(&block)
	io.WriteString(&out, http2.ClientPreface)
	f.WriteSettings()
	f.WriteSettingsAck()
	for stream := range streams {
		block.Reset()
		for i := 0; i < len(headers); i += 2 {
			enc.WriteField(hpack.HeaderField{Name: headers[i], Value: headers[i+1]})
		}
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: id(stream), BlockFragment: block.Bytes(),
			EndStream: end, EndHeaders: true})
	}
	if _, err := conn.Write(out.Bytes()); err != nil {
		return err
	}
	for answered != nil && streams > 0 {
		fr, err := f.ReadFrame()
		if err != nil {
			return err
		}
		if answered(fr.Header()) {
			streams--
		}
	}
	return nil
}
