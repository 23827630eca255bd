package gateway

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsflate"
	"github.com/gobwas/ws/wsutil"
	"github.com/golang-jwt/jwt/v5"

	"github.com/socknotify/socknotify/gateway/internal/event"
)

// send sends a message.
func (r *wsReader) send(t *testing.T, text string) {
	t.Helper()
	must(t, wsutil.WriteClientText(r.conn, []byte(text)))
}

// ask publishes, and returns the answer. Events that come before it are skipped.
func (r *wsReader) ask(t *testing.T, ref int, topic, data, key string) (a answerMessage) {
	t.Helper()
	event := event.Encode(map[string]string{"topic": topic, "data": data, "key": key})
	r.send(t, fmt.Sprintf(`{"ref":%d,"publish":%s}`, ref, event))
	for a.Ref != uint64(ref) {
		b, err := r.read()
		must(t, err)
		a = answerMessage{}
		must(t, json.Unmarshal(b, &a))
	}
	return a
}

// An event that is published over a WebSocket is acknowledged with its id, once for each key, or
// refused as one of a POST is.
func TestPublishOverSocket(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{MaxMessage: 10_000})
	r, err := openWS(s.url, "topic=a&topic=live.a")
	must(t, err)
	defer r.close()
	publisher, err := openWS(s.url, "") // without a topic
	must(t, err)
	defer publisher.close()
	if publisher.first.Client == "" || publisher.first.Client == r.first.Client {
		t.Errorf("ids %q and %q", publisher.first.Client, r.first.Client)
	}
	until(t, "the client has joined", func() bool { return s.members() == 2 })
	stored := publisher.ask(t, 1, "a", "line 1\nline 2", "key")
	if stored.Published == nil || stored.Published.ID == "" || stored.Published.Duplicate {
		t.Fatalf("%+v", stored)
	}
	expect(t, r, message{Topic: "a", Data: "line 1\nline 2", ID: stored.Published.ID})
	again := publisher.ask(t, 2, "a", "line 1\nline 2", "key")
	if again.Published == nil || *again.Published != (Receipt{stored.Published.ID, true}) {
		t.Errorf("%+v", again)
	}
	status, body := s.request("POST", "/publish?topic=a", "line 1\nline 2", "Idempotency-Key", "key")
	if status != 200 || !strings.Contains(body, stored.Published.ID) {
		t.Errorf("a POST with the same key: %d %s", status, body)
	}
	a := publisher.ask(t, 3, "live.a", "now", "")
	if a.Published == nil || *a.Published != (Receipt{}) {
		t.Errorf("live: %+v", a)
	}
	expect(t, r, message{Topic: "live.a", Data: "now"})
	for _, c := range []struct {
		topic, data, key string
		status           int
	}{
		{"a", "other", "key", 422},
		{"a.*", "x", "", 400},
		{"$control", "x", "", 400},
		{"", "x", "", 400},
		{"a", strings.Repeat("x", 10_001), "", 413},
		{"a", "x", strings.Repeat("k", event.MaxTopic+1), 400},
	} {
		a := publisher.ask(t, 4, c.topic, c.data, c.key)
		if a.Published != nil || a.Error == nil || a.Error.Status != c.status || a.Error.Text == "" {
			t.Errorf("%+v: %+v", c, a)
		}
	}
	if last := publisher.ask(t, 5, "a", "end", ""); last.Published == nil {
		t.Errorf("%+v", last)
	}
	expect(t, r, message{Topic: "a", Data: "end"})
}

// Messages begin after the whole request for a WebSocket: its body publishes nothing.
func TestSocketBody(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	r, err := openWS(s.url, "topic=a")
	must(t, err)
	defer r.close()
	frame := ws.MaskFrame(ws.NewTextFrame([]byte(`{"ref":1,"publish":{"topic":"a","data":"from a body"}}`)))
	b := string(must1(ws.CompileFrame(frame)))
	for _, c := range []struct{ header, body, status string }{
		{fmt.Sprintf("Content-Length: %d\r\n", len(b)), b, "HTTP/1.1 400 Bad Request"},
		{"Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(b), b), "HTTP/1.1 400 Bad Request"},
		{fmt.Sprintf("Expect: 100-continue\r\nContent-Length: %d\r\n", len(b)), b, "HTTP/1.1 400 Bad Request"},
		{"Content-Length: 0\r\n", "", "HTTP/1.1 101 Switching Protocols"},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		must(t, err)
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(readTimeout))
		fmt.Fprint(conn, "GET /socket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"+c.header+"\r\n"+c.body)
		status, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || strings.TrimSpace(status) != c.status {
			t.Errorf("%q: %q, %v", c.header, status, err)
		}
	}
	s.publish("a", "the first")
	expect(t, r, message{Topic: "a", Data: "the first"})
}

// What is no request closes the WebSocket, and a message that is too large does.
func TestMalformedMessages(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{MaxMessage: 1000})
	check := undisturbed(t, s)
	for text, code := range map[string]ws.StatusCode{
		"hello":                                ws.StatusPolicyViolation,
		"{}":                                   ws.StatusPolicyViolation,
		`{"publish":{}}`:                       ws.StatusPolicyViolation,
		`{"ref":1}`:                            ws.StatusPolicyViolation,
		`{"ref":-1,"publish":{}}`:              ws.StatusPolicyViolation,
		`{"ref":1,"publish":[]}`:               ws.StatusPolicyViolation,
		strings.Repeat("[", 6000):              ws.StatusPolicyViolation,
		strings.Repeat("x", 2*1000+mostHead+1): ws.StatusMessageTooBig,
	} {
		r, err := openWS(s.url, "")
		must(t, err)
		r.send(t, text)
		var closed wsutil.ClosedError
		if _, err := r.read(); !errors.As(err, &closed) || closed.Code != code {
			t.Errorf("%.20s: %v, want %d", text, err, code)
		}
		r.close()
	}
	r, err := openWS(s.url, "")
	must(t, err)
	defer r.close()
	must(t, wsutil.WriteClientBinary(r.conn, []byte(`{"ref":1,"publish":{"topic":"a"}}`)))
	if _, err := r.read(); err == nil {
		t.Error("a binary message was taken")
	}
	check()
}

// A client publishes over a WebSocket what its token allows, and only if its page may.
func TestSocketGrants(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Authorize: JWT("HS256", secret), Origins: []string{"*"},
		PublishOrigins: []string{"https://good.example"}})
	tok := token(t, jwt.SigningMethodHS256, secret, time.Minute, []string{"a"}, []string{"b", "c.*"})
	open := func(header ws.HandshakeHeaderString) *wsReader {
		t.Helper()
		dialer := ws.Dialer{Timeout: readTimeout, Header: header}
		address := "ws" + strings.TrimPrefix(s.url, "http") + "/socket?token=" + tok
		conn, in, _, err := dialer.Dial(t.Context(), address)
		must(t, err)
		r := &wsReader{conn: conn, in: conn}
		if in != nil {
			r.in = in
		}
		_, err = r.read()
		must(t, err)
		return r
	}
	for _, c := range []struct {
		header string
		topic  string
		status int // 0 is published
	}{
		{"", "b", 0},
		{"", "c.d", 0},
		{"", "a", 403},
		{"", "c", 403},
		{"Origin: https://good.example\r\n", "b", 0},
		{"Origin: https://evil.example\r\n", "b", 403},
		{"Origin: https://good.example\r\nCookie: x=y\r\n", "b", 0},
		{"Cookie: x=y\r\n", "b", 403},
	} {
		r := open(ws.HandshakeHeaderString(c.header))
		a := r.ask(t, 1, c.topic, "x", "")
		got := 0
		if a.Error != nil {
			got = a.Error.Status
		}
		if got != c.status || (a.Published != nil) != (got == 0) {
			t.Errorf("%+v: %+v", c, a)
		}
		r.close()
	}
}

// A deflateClient is a WebSocket of a library of others that offers compression.
type deflateClient struct {
	*testing.T
	ws.Handshake
	conn io.ReadWriteCloser
	in   io.Reader
}

func openDeflate(t *testing.T, address, query string) *deflateClient {
	t.Helper()
	dialer := ws.Dialer{Timeout: readTimeout}
	dialer.Extensions = append(dialer.Extensions, wsflate.DefaultParameters.Option())
	address = "ws" + strings.TrimPrefix(address, "http") + "/socket?" + query
	conn, in, hs, err := dialer.Dial(t.Context(), address)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(readTimeout)))
	if in == nil {
		in = bufio.NewReader(conn)
	}
	return &deflateClient{t, hs, conn, in}
}

// next returns the next message, and how many bytes it had on the wire.
func (c *deflateClient) next() (m message, compressed bool, length int) {
	c.Helper()
	//lint:ignore SA1019 the peer is this test's gateway
	f, err := ws.ReadFrame(c.in)
	must(c, err)
	length = len(f.Payload)
	if compressed = f.Header.Rsv1(); compressed {
		f, err = wsflate.DecompressFrame(f)
		must(c, err)
	}
	if f.Header.OpCode == ws.OpClose {
		code, reason := ws.ParseCloseFrameData(f.Payload)
		return message{name: fmt.Sprint(int(code)), Data: reason}, compressed, length
	}
	must(c, json.Unmarshal(f.Payload, &m))
	return m, compressed, length
}

func (c *deflateClient) say(text string) {
	c.Helper()
	f, err := wsflate.CompressFrame(ws.NewTextFrame([]byte(text)))
	must(c, err)
	must(c, ws.WriteFrame(c.conn, ws.MaskFrame(f)))
}

// Events of CompressMin bytes and more are compressed for the WebSockets that have agreed to it,
// and what they send may be compressed. Other clients get the same.
func TestCompression(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Compression: 1, CompressMin: 300, MaxMessage: 10_000})
	check := undisturbed(t, s)
	plain, err := openWS(s.url, "topic=a")
	must(t, err)
	defer plain.close()
	var clients []*deflateClient
	for range 2 {
		c := openDeflate(t, s.url, "topic=a")
		agreed := wsflate.DefaultParameters.Option() // no context takeover, on either side
		if len(c.Extensions) != 1 || !c.Extensions[0].Equal(agreed) {
			t.Errorf("extensions %v", c.Extensions)
		}
		if _, compressed, n := c.next(); compressed {
			t.Errorf("the first message is compressed, %d bytes", n)
		}
		clients = append(clients, c)
	}
	until(t, "all have joined", func() bool { return s.members() == 4 })
	want := func(data string, short bool) {
		t.Helper()
		expect(t, plain, message{Topic: "a", Data: data})
		for _, c := range clients {
			m, compressed, n := c.next()
			if m.Data != data || m.Topic != "a" || compressed == short || compressed && n > len(data)/5 {
				t.Errorf("%.20q, compressed %t, %d bytes, want %.20q", m.Data, compressed, n, data)
			}
		}
	}
	long := strings.Repeat("Ünïcode 𝄞 ", 500)
	s.publish("a", long)
	want(long, false)
	s.publish("a", "short")
	want("short", true)
	publisher := openDeflate(t, s.url, "")
	publisher.next()
	publisher.say(`{"ref":1,"publish":{"topic":"a","data":"` + long + `"}}`)
	want(long, false)
	publisher.next() // the answer

	// The limit of a message is after inflating.
	bomb := openDeflate(t, s.url, "")
	bomb.next()
	bomb.say(strings.Repeat("x", 2*10_000+mostHead+1))
	if m, _, _ := bomb.next(); m.name != fmt.Sprint(int(ws.StatusMessageTooBig)) {
		t.Errorf("a bomb is answered by %+v", m)
	}
	broken := ws.NewTextFrame([]byte("\xff\xff\xff"))
	broken.Header.Rsv = ws.Rsv(true, false, false)
	must(t, ws.WriteFrame(publisher.conn, ws.MaskFrame(broken)))
	if m, _, _ := publisher.next(); m.name != fmt.Sprint(int(ws.StatusInvalidFramePayloadData)) {
		t.Errorf("what is not deflated is answered by %+v", m)
	}
	check()

	off := newSite(t, t.TempDir(), Config{})
	if c := openDeflate(t, off.url, "topic=a"); len(c.Extensions) != 0 {
		t.Errorf("by default: extensions %v", c.Extensions)
	}
}
