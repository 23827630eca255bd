package main

//lint:file-ignore SA1019 only the deprecated client can send CONNECT requests with a protocol

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/socknotify/socknotify/internal/selfcert"
)

// certificate writes a certificate and its key, and returns the flags for them.
func certificate(t *testing.T) (flags []string) {
	t.Helper()
	pair, _, err := selfcert.New(time.Hour, "127.0.0.1")
	must(t, err)
	cert, key, err := selfcert.PEM(pair)
	must(t, err)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	must(t, os.WriteFile(certFile, cert, 0o600))
	must(t, os.WriteFile(keyFile, key, 0o600))
	return []string{"--cert", certFile, "--key", keyFile}
}

// ways are the two ways to HTTP/2: with TLS, and without it, as a proxy.
func ways(t *testing.T, f func(t *testing.T, url, debug string, stop func() int), more ...string) {
	for _, way := range []string{"TLS", "h2c"} {
		t.Run(way, func(t *testing.T) {
			flags := []string{"--h2c"}
			if way == "TLS" {
				flags = certificate(t)
			}
			flags = append(flags, "--store", t.TempDir())
			url, debug, stop := start(t, append(flags, more...)...)
			f(t, url, debug, stop)
		})
	}
}

// A conn2 is one connection of HTTP/2.
type conn2 struct {
	t   *testing.T
	url string
	*http2.ClientConn
}

func dialHTTP2(t *testing.T, url string) *conn2 {
	t.Helper()
	scheme, address, _ := strings.Cut(url, "://")
	conn, err := net.Dial("tcp", address)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	if scheme == "https" {
		secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		must(t, secure.Handshake())
		conn = secure
	}
	c, err := new(http2.Transport).NewClientConn(conn)
	must(t, err)
	return &conn2{t, url, c}
}

// send sends a request, and returns the answer, whose body ends with the test.
func (c *conn2) send(method, path string, body io.Reader, header ...string,
) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	c.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(header); i += 2 {
		r.Header[header[i]] = []string{header[i+1]}
	}
	answer, err := c.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	c.t.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK || answer.ProtoMajor != 2 {
		return nil, fmt.Errorf("%s %s: %s by %s", method, path, answer.Status, answer.Proto)
	}
	return answer, nil
}

// open is send for a request that must succeed.
func (c *conn2) open(method, path string, body io.Reader, header ...string) *http.Response {
	c.t.Helper()
	answer, err := c.send(method, path, body, header...)
	must(c.t, err)
	return answer
}

// A socket2 is a WebSocket on a stream of HTTP/2.
type socket2 struct {
	io.Reader
	io.WriteCloser // Close ends the client's side of the stream
}

func (c *conn2) socket(path string) *socket2 {
	c.t.Helper()
	body, send := io.Pipe()
	c.t.Cleanup(func() { send.Close() })
	answer := c.open("CONNECT", path, body, ":protocol", "websocket", "Sec-Websocket-Version", "13")
	return &socket2{answer.Body, send}
}

func (s *socket2) next(t *testing.T) string {
	t.Helper()
	text, err := wsutil.ReadServerText(s)
	must(t, err)
	return string(text)
}

// nextData returns the next line of data of Server-Sent Events, or nothing at the end.
func nextData(in *bufio.Reader) string {
	for {
		line, err := in.ReadString('\n')
		if text, ok := strings.CutPrefix(line, "data: "); ok || err != nil {
			return strings.TrimSpace(text)
		}
	}
}

// Event streams, long polls, WebSockets and publishing share one connection of HTTP/2, and the end
// of the command ends them.
func TestHTTP2(t *testing.T) {
	ways(t, func(t *testing.T, url, debug string, stop func() int) {
		c := dialHTTP2(t, url)
		var streams []*bufio.Reader
		for i := range 12 {
			answer := c.open("GET", fmt.Sprint("/events?topic=t", i), nil)
			streams = append(streams, bufio.NewReader(answer.Body))
		}
		socket := c.socket("/socket?topic=s")
		if first := socket.next(t); !strings.Contains(first, `"last"`) {
			t.Errorf("the first message is %s", first)
		}
		// The poll begins at a position, because it is counted before it has found the present one.
		var at struct{ Last []string }
		must(t, json.NewDecoder(c.open("GET", "/poll?topic=p&last=1", nil).Body).Decode(&at))
		polled := make(chan string)
		go func() {
			answer, err := c.send("GET", "/poll?topic=p&after="+at.Last[0], nil)
			if err != nil {
				polled <- err.Error()
				return
			}
			b, _ := io.ReadAll(answer.Body)
			polled <- string(b)
		}()
		until(t, "all have joined", func() bool { return conns(t, debug) == 14 })
		for i := range streams {
			c.open("POST", fmt.Sprint("/publish?topic=t", i), strings.NewReader(fmt.Sprint("event ", i)))
			if got := nextData(streams[i]); got != fmt.Sprint("event ", i) {
				t.Errorf("client %d got %q", i, got)
			}
		}
		c.open("POST", "/publish?topic=s", strings.NewReader("to the socket"))
		if got := socket.next(t); !strings.Contains(got, "to the socket") {
			t.Errorf("the WebSocket got %s", got)
		}
		must(t, wsutil.WriteClientText(socket, []byte(`{"ref":1,"subscribe":{"topic":"added"}}`)))
		if got := socket.next(t); !strings.Contains(got, `"subscribed"`) {
			t.Errorf("a change is answered with %s", got)
		}
		c.open("POST", "/publish?topic=added", strings.NewReader("to the topic"))
		if got := socket.next(t); !strings.Contains(got, `"for":"added"`) {
			t.Errorf("of the topic that was added, the WebSocket got %s", got)
		}
		c.open("POST", "/publish?topic=p", strings.NewReader("to the poll"))
		if got := <-polled; !strings.Contains(got, "to the poll") {
			t.Errorf("the poll got %s", got)
		}
		stopped := make(chan int, 1)
		go func() { stopped <- stop() }()
		frame, err := ws.ReadFrame(socket)
		if err != nil || frame.Header.OpCode != ws.OpClose {
			t.Errorf("at the end: %v, %v", frame.Header, err)
		}
		must(t, ws.WriteFrame(socket, ws.MaskFrame(ws.NewCloseFrame(frame.Payload))))
		must(t, socket.Close())
		for i := range streams {
			if got := nextData(streams[i]); got != "" {
				t.Errorf("at the end client %d got %q", i, got)
			}
		}
		if status := <-stopped; status != 0 {
			t.Errorf("status %d", status)
		}
	})
}

// Streams of Mercure and what is published to them share one connection of HTTP/2, and the end of
// the command ends them.
func TestMercureHTTP2(t *testing.T) {
	flags, token := mercureFlags(t)
	ways(t, func(t *testing.T, url, debug string, stop func() int) {
		c := dialHTTP2(t, url)
		var streams []*bufio.Reader
		for i := range 12 {
			answer := c.open("GET", fmt.Sprint("/.well-known/mercure?topic=https://a.example/", i), nil,
				"Authorization", "Bearer "+token)
			if link := answer.Header.Get("Link"); !strings.Contains(link, `rel="mercure"`) {
				t.Errorf("the link is %q", link)
			}
			streams = append(streams, bufio.NewReader(answer.Body))
		}
		until(t, "all have joined", func() bool { return conns(t, debug) == 12 })
		for i := range streams {
			form := fmt.Sprintf("topic=https://a.example/%d&private=on&data=event+%d", i, i)
			c.open("POST", "/.well-known/mercure", strings.NewReader(form),
				"Authorization", "Bearer "+token, "Content-Type", "application/x-www-form-urlencoded")
			if got := nextData(streams[i]); got != fmt.Sprint("event ", i) {
				t.Errorf("client %d got %q", i, got)
			}
		}
		stopped := make(chan int, 1)
		go func() { stopped <- stop() }()
		for i := range streams {
			if got := nextData(streams[i]); got != "" {
				t.Errorf("at the end client %d got %q", i, got)
			}
		}
		if status := <-stopped; status != 0 {
			t.Errorf("status %d", status)
		}
	}, flags...)
}

// curl publishes and subscribes by HTTP/2.
func TestCurl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed: ", err)
	}
	ways(t, func(t *testing.T, url, debug string, _ func() int) {
		how := "--http2-prior-knowledge"
		if strings.HasPrefix(url, "https") {
			how = "--http2"
		}
		curl := func(args ...string) *exec.Cmd {
			args = append([]string{how, "-k", "-s", "-S", "-N"}, args...)
			return exec.CommandContext(t.Context(), "curl", args...)
		}
		subscriber := curl("-i", url+"/events?topic=news")
		out, err := subscriber.StdoutPipe()
		must(t, err)
		must(t, subscriber.Start())
		defer subscriber.Wait()
		defer subscriber.Process.Kill()
		lines := bufio.NewScanner(out)
		if lines.Scan(); !strings.HasPrefix(lines.Text(), "HTTP/2 200") {
			t.Fatalf("the answer begins with %q", lines.Text())
		}
		until(t, "it has joined", func() bool { return conns(t, debug) == 1 })
		publisher := curl("-d", "hello", "-w", " %{http_version} %{http_code}", url+"/publish?topic=news")
		answer, err := publisher.CombinedOutput()
		if err != nil || !bytes.HasSuffix(answer, []byte(" 2 200")) {
			t.Fatalf("%v: %s", err, answer)
		}
		for lines.Scan() && lines.Text() != "data: hello" {
		}
		if lines.Text() != "data: hello" {
			t.Error("the event did not come")
		}
	})
}

// A netLog is what Chromium has recorded of its network.
type netLog struct {
	types  map[string]int
	events []netEvent
}

type netEvent struct {
	Type   int
	Source struct{ ID int }
	Params map[string]any
}

// headers returns the header fields of a request.
func (e *netEvent) headers() string {
	all, _ := e.Params["headers"].([]any)
	return fmt.Sprintln(all...)
}

// readNetLog reads the log of a browser that has ended. Each event is a line.
func readNetLog(t *testing.T, path string) (l netLog) {
	t.Helper()
	file, err := os.Open(path)
	must(t, err)
	defer file.Close()
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		line = bytes.TrimSuffix(bytes.TrimSpace(line), []byte(","))
		if constants, ok := bytes.CutPrefix(line, []byte(`{"constants":`)); ok {
			var of struct{ LogEventTypes map[string]int }
			must(t, json.Unmarshal(constants, &of))
			l.types = of.LogEventTypes
		}
		var e netEvent
		if json.Unmarshal(line, &e) == nil {
			l.events = append(l.events, e)
		}
		if err != nil {
			break
		}
	}
	if l.types == nil || len(l.events) == 0 {
		t.Fatal("there is no log")
	}
	return l
}

// Twelve EventSources of a page and its WebSocket, more than the six connections that a browser
// opens by HTTP/1.1, have one connection of HTTP/2, as Chromium's own log says.
func TestChromiumHTTP2(t *testing.T) {
	const sources = 12
	log := filepath.Join(t.TempDir(), "net.json")
	url, debug, _ := start(t, append(certificate(t), "--store", t.TempDir(), "--demo")...)
	b := openTab(t, url+"/demo/", "--ignore-certificate-errors", "--log-net-log="+log).ready()
	until(t, "the demo has left", func() bool { return conns(t, debug) == 0 })
	b.eval(fmt.Sprintf(`
		sources = Array.from({ length: %d }, (_, i) => {
			const s = new EventSource('/events?topic=t' + i);
			s.onmessage = e => got.push('t' + i + ': ' + e.data);
			return s;
		});
		socket = new WebSocket(location.origin.replace('http', 'ws') + '/socket?topic=s');
		socket.onmessage = e => {
			const m = JSON.parse(e.data);
			if ('data' in m) got.push('s: ' + m.data);
		};
		socket.onerror = () => errors.push('WebSocket');
		1`, sources))
	until(t, "all have joined", func() bool { return conns(t, debug) == sources+1 })
	want := []string{"s: to the WebSocket"}
	b.eval(fmt.Sprintf(`Promise.all([...Array(%d).keys()].map(i =>
			fetch('/publish?topic=t' + i, { method: 'POST', body: 'event ' + i })).concat(
			fetch('/publish?topic=s', { method: 'POST', body: 'to the WebSocket' }))).then(() => 1)`,
		sources))
	for i := range sources {
		want = append(want, fmt.Sprintf("t%d: event %d", i, i))
	}
	b.has(want...)
	b.is("errors.join()", "")
	b.eval("sources.forEach(s => s.close()); socket.close(1000, 'enough')")
	until(t, "all have left", func() bool { return conns(t, debug) == 0 })
	b.quit()

	l := readNetLog(t, log)
	host := strings.TrimPrefix(url, "https://")
	sessions, requests := map[int]bool{}, map[string]int{}
	announced := false
	for _, e := range l.events {
		if e.Type == l.types["HTTP2_SESSION"] && e.Params["host"] == host {
			sessions[e.Source.ID] = true
		}
	}
	for _, e := range l.events {
		switch {
		case !sessions[e.Source.ID]:
		case e.Type == l.types["HTTP2_SESSION_RECV_SETTING"]:
			announced = announced || e.Params["value"] == 1.0 &&
				strings.Contains(fmt.Sprint(e.Params["id"]), "ENABLE_CONNECT_PROTOCOL")
		case e.Type == l.types["HTTP2_SESSION_SEND_HEADERS"]:
			kind, head := "other", e.headers()
			switch {
			case strings.Contains(head, ":method: CONNECT") &&
				strings.Contains(head, ":protocol: websocket") &&
				strings.Contains(head, ":path: /socket?topic=s"): // the demo has one, too
				kind = "socket"
			case strings.Contains(head, ":method: POST"):
				kind = "publish"
			case strings.Contains(head, ":path: /events?topic=t"):
				kind = "events"
			}
			requests[kind]++
		}
	}
	if len(sessions) != 1 || !announced || requests["events"] != sources || requests["socket"] != 1 ||
		requests["publish"] != sources+1 {
		t.Errorf("%d connections of HTTP/2, the extension announced: %t, requests: %v",
			len(sessions), announced, requests)
	}
}

// The headers of a request may have as many bytes as docs/gateway.md says. By HTTP/1.1 they count as
// they are sent, with the first line, and package net/http reads up to 4 KiB more. By HTTP/2 they count
// as RFC 9113 (6.5.2) says, and package http2 allows 320 bytes more.
func TestHeaderLimit(t *testing.T) {
	const limit, more1, more2 = 16 << 10, 4 << 10, 320
	url, _, _ := start(t, "--h2c", "--store", t.TempDir())
	address := strings.TrimPrefix(url, "http://")
	for size, want := range map[int]int{limit: http.StatusOK, limit + more1 + 1: http.StatusRequestHeaderFieldsTooLarge} {
		conn := must1(net.Dial("tcp", address))
		defer conn.Close()
		in := bufio.NewReader(conn)
		for _, n := range []int{100, size} { // on a connection that is used again, too
			head := "GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: "
			const end = "\r\n\r\n"
			io.WriteString(conn, head+strings.Repeat("x", n-len(head)-len(end))+end)
			answer := must1(http.ReadResponse(in, nil))
			io.Copy(io.Discard, answer.Body)
			if n == size && answer.StatusCode != want || n != size && answer.StatusCode != http.StatusOK {
				t.Errorf("%d bytes by HTTP/1.1: %s", n, answer.Status)
			}
		}
	}
	conn := must1(net.Dial("tcp", address))
	defer conn.Close()
	io.WriteString(conn, http2.ClientPreface)
	f := http2.NewFramer(conn, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	must(t, f.WriteSettings())
	for i, n := range []int{limit, limit + more2, limit + more2 + 1} {
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		for _, h := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"},
			{Name: ":authority", Value: "localhost"}, {Name: ":path", Value: "/healthz"}, {Name: "a"}} {
			if h.Name == "a" {
				h.Value = strings.Repeat("~", n-len(h.Name)-32)
			}
			n -= int(h.Size())
			must(t, encoder.WriteField(h))
		}
		stream, rest := uint32(2*i+1), block.Bytes()
		first := min(len(rest), 16<<10)
		must(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: rest[:first], EndStream: true,
			EndHeaders: first == len(rest)}))
		if rest = rest[first:]; len(rest) > 0 {
			must(t, f.WriteContinuation(stream, true, rest))
		}
		for {
			h, ok := must1(f.ReadFrame()).(*http2.MetaHeadersFrame)
			if !ok || h.StreamID != stream {
				continue
			}
			want := strconv.Itoa(http.StatusOK)
			if i == 2 {
				want = strconv.Itoa(http.StatusRequestHeaderFieldsTooLarge)
			}
			if got := h.PseudoValue("status"); got != want {
				t.Errorf("%d bytes by HTTP/2: %s, want %s", n, got, want)
			}
			break
		}
	}
}
