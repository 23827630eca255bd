package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/mercure"
	"github.com/socknotify/socknotify/gateway/internal/stream"
)

// undisturbed opens a client. The returned function checks that it still gets an event, and no other.
func undisturbed(t *testing.T, s *site) (check func()) {
	r, err := openSSE(s.url, "topic=calm", "")
	must(t, err)
	t.Cleanup(r.close)
	return func() {
		t.Helper()
		s.publish("calm", "still here")
		expect(t, r, message{Data: "still here"})
	}
}

// More clients in a second than AcceptRate are answered that they should come back, and when; then they are accepted.
func TestAcceptRate(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{AcceptRate: Rate{PerSecond: 2}, Retry: 5 * time.Second})
	check := undisturbed(t, s)
	var refused atomic.Int64
	until(t, "a client is refused", func() bool {
		var arriving sync.WaitGroup
		for range 20 {
			arriving.Go(func() {
				answer, err := roundTripper.RoundTrip(must1(http.NewRequest("GET", s.url+"/events?topic=a", nil)))
				if err != nil {
					t.Error(err)
					return
				}
				defer answer.Body.Close()
				if answer.StatusCode == http.StatusOK {
					return
				}
				refused.Add(1)
				after, err := strconv.Atoi(answer.Header.Get("Retry-After"))
				if answer.StatusCode != http.StatusServiceUnavailable || err != nil || after < 5 || after > 10 {
					t.Errorf("%s, Retry-After %q", answer.Status, answer.Header.Get("Retry-After"))
				}
			})
		}
		arriving.Wait()
		return refused.Load() > 0
	})
	if n := s.Stats().Refused; n != uint64(refused.Load()) {
		t.Errorf("%d were counted, %d refused", n, refused.Load())
	}
	until(t, "a client is accepted again", func() bool {
		r, err := openSSE(s.url, "topic=a", "")
		if err == nil {
			r.close()
		}
		return err == nil
	})
	check()
}

// send sends bytes on a connection of its own, and returns the status of the answer.
func (s *site) send(request string) (status int, err error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(readTimeout))
	go io.WriteString(conn, request) // the answer may come before all is sent
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	answer.Body.Close()
	return answer.StatusCode, nil
}

// A request with more headers than the server allows is refused and counted, whichever way it subscribes.
func TestHeaderFlood(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	check := undisturbed(t, s)
	flood := strings.Repeat("X-Flood: "+strings.Repeat("x", 1000)+"\r\n", 100)
	for _, path := range []string{"GET /events", "GET /poll", "GET /socket", "POST /publish"} {
		status, err := s.send(path + "?topic=a HTTP/1.1\r\nHost: localhost\r\n" + flood + "\r\n")
		if err != nil || status != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s: %d, %v", path, status, err)
		}
	}
	if n := s.http.Stats().Rejected; n != 4 {
		t.Errorf("%d were counted", n)
	}
	check()
	if st := s.Stats(); st.Conns != 1 || st.Topics != 1 {
		t.Errorf("%+v", st)
	}
}

// A WebSocket whose peer has gone without a word is closed and counted.
func TestHalfOpenSockets(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Heartbeat: 100 * time.Millisecond, WriteTimeout: time.Second})
	check := undisturbed(t, s)
	const n = 5
	for range n { // they never answer a ping
		r, err := openWS(s.url, "topic=a")
		must(t, err)
		defer r.close()
	}
	until(t, "they are closed", func() bool { return s.Stats().Conns == 1 })
	if got := s.Stats().TimedOut.Idle; got != n {
		t.Errorf("%d were counted, want %d", got, n)
	}
	check()
}

// A client that sends pings, or bytes that no one asked for, is closed. It would keep a processor
// busy.
func TestChattyClients(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	check := undisturbed(t, s)
	socket, err := openWS(s.url, "topic=a")
	must(t, err)
	defer socket.close()
	var pings bytes.Buffer
	for range 10 * mostPings { // more than several seconds allow
		must(t, ws.WriteFrame(&pings, ws.MaskFrameInPlace(ws.NewPingFrame(nil))))
	}
	socket.conn.Write(pings.Bytes())
	var closed wsutil.ClosedError
	_, err = socket.read()
	if !errors.As(err, &closed) || closed.Code != ws.StatusPolicyViolation {
		t.Errorf("after many pings: %v", err)
	}
	r, err := openSSE(s.url, "topic=a", "")
	must(t, err)
	defer r.close()
	for range mostHead + 1 { // one byte at a time
		if _, err := r.conn.Write([]byte("x")); err != nil {
			break
		}
	}
	if _, err := r.next(); err == nil {
		t.Error("a client of Server-Sent Events that sends was not closed")
	}
	until(t, "both have left", func() bool { return s.Stats().Conns == 1 })
	check()
}

// Events that are too large are refused, however they come, and the next ones are delivered.
func TestGiantEvents(t *testing.T) {
	const most = 10_000
	s := newSite(t, t.TempDir(), Config{MaxMessage: most, MaxQueued: 64 << 10})
	check := undisturbed(t, s)
	live, err := openWS(s.url, "topic=live.a&topic=a")
	must(t, err)
	defer live.close()
	until(t, "all have joined", func() bool { return s.members() == 3 })
	giant := strings.Repeat("x", most+1)
	for _, topic := range []string{"a", "live.a"} {
		before := s.Stats().Rejected
		if status, _ := s.request("POST", "/publish?topic="+topic, giant); status != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d", topic, status)
		}
		chunked := fmt.Sprintf("%x\r\n%s\r\n", len(giant), giant)
		status, err := s.send("POST /publish?topic=" + topic + " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" +
			strings.Repeat(chunked, 100) + "0\r\n\r\n")
		if err != nil || status != http.StatusRequestEntityTooLarge {
			t.Errorf("%s, in chunks: %d, %v", topic, status, err)
		}
		if n := s.Stats().Rejected - before; n != 2 {
			t.Errorf("%s: %d were counted", topic, n)
		}
	}
	// Publishers on NATS are not checked by the gateway.
	giant = strings.Repeat("x", most+stream.MaxHeaders+1)
	var refused *jetstream.APIError
	_, err = s.js().Publish(context.Background(), event.StoredPrefix+"a", []byte(giant))
	if !errors.As(err, &refused) || refused.ErrorCode != 10054 {
		t.Errorf("JetStream has answered %v", err)
	}
	before := s.Stats().Strange
	must(t, s.config.Conn.Publish(event.LivePrefix+"live.a", []byte(giant)))
	s.publish("live.a", "1")
	expect(t, live, message{Topic: "live.a", Data: "1"})
	if n := s.Stats().Strange - before; n != 1 {
		t.Errorf("%d were counted", n)
	}
	s.publish("a", "2")
	expect(t, live, message{Topic: "a", Data: "2"})
	check()
}

// A publisher that stops in the middle of an event is answered and disconnected, and counted.
func TestStoppedPublisher(t *testing.T) {
	defer func(before time.Duration) { access.BodyTimeout = before }(access.BodyTimeout)
	access.BodyTimeout = 100 * time.Millisecond
	s := newSite(t, t.TempDir(), Config{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	must(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "POST /publish?topic=a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhello")
	conn.SetReadDeadline(time.Now().Add(readTimeout))
	answer, err := io.ReadAll(conn)
	must(t, err)
	if status, _, _ := strings.Cut(string(answer), "\r\n"); status != "HTTP/1.1 408 Request Timeout" {
		t.Errorf("got %q", answer)
	}
	if n := s.Stats().Rejected; n != 1 {
		t.Errorf("%d were counted", n)
	}
	s.publish("a", "others go on")
}

// A request whose body does not come is answered, and its connection ends, whatever the request asks
// for.
func TestMissingBody(t *testing.T) {
	defer func(before time.Duration) { access.BodyTimeout = before }(access.BodyTimeout)
	access.BodyTimeout = 100 * time.Millisecond
	s, _ := guarded(t, Config{Mercure: mercureTestConfig().Mercure, Heartbeat: 100 * time.Millisecond})
	token := "Authorization: Bearer " + user(t, "alice") + "\r\n"
	early := httptest.NewServer(Unready(Config{}))
	defer early.Close()
	for _, url := range []string{s.url, early.URL} {
		for _, head := range []string{
			"GET /healthz", "GET /readyz", "GET /events?topic=a", "GET /poll?topic=a", "GET /socket?topic=a",
			"GET /presence?topic=a", "POST /disconnect?user=x", "GET /push.js", "GET /nothing", "POST /nothing",
			"POST /publish?topic=a", "OPTIONS /publish", "GET " + mercure.Path + "?topic=a", "POST " + mercure.Path,
		} {
			for _, more := range []string{"", token} {
				for _, body := range []string{"Content-Length: 100000\r\n", "Transfer-Encoding: chunked\r\n"} {
					conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
					must(t, err)
					fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\n%s%s\r\n", head, more, body)
					conn.SetReadDeadline(time.Now().Add(10 * time.Second))
					answer, err := io.ReadAll(conn)
					conn.Close()
					if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 ") {
						t.Errorf("%s: %s: %q, %v", url, head, answer, err)
					}
				}
			}
		}
	}
}

// A body that is not wanted and has come ends no connection: the next request may come when the time
// for the body is over.
func TestUnwantedBody(t *testing.T) {
	defer func(before time.Duration) { access.BodyTimeout = before }(access.BodyTimeout)
	access.BodyTimeout = 100 * time.Millisecond
	s := newSite(t, t.TempDir(), Config{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	must(t, err)
	defer conn.Close()
	in := bufio.NewReader(conn)
	conn.SetReadDeadline(time.Now().Add(readTimeout))
	for _, head := range []string{"POST /nothing", "GET /healthz", "POST /publish?topic=a", "GET /readyz"} {
		fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nxx", head)
		answer, err := http.ReadResponse(in, nil)
		must(t, err)
		io.Copy(io.Discard, answer.Body)
		if answer.Close {
			t.Errorf("%s: the connection ends", head)
		}
		time.Sleep(3 * access.BodyTimeout)
	}
}

// An event that says that it is too long is refused before it has come.
func TestGiantLength(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	must(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "POST /publish?topic=a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000000\r\n\r\n")
	conn.SetReadDeadline(time.Now().Add(readTimeout))
	answer, err := io.ReadAll(conn)
	must(t, err)
	if status, _, _ := strings.Cut(string(answer), "\r\n"); status != "HTTP/1.1 413 Request Entity Too Large" {
		t.Errorf("got %q", answer)
	}
}

// Clients that come at once are not more than MaxConns.
func TestMaxConns(t *testing.T) {
	const most = 3
	s := newSite(t, t.TempDir(), Config{MaxConns: most})
	var coming sync.WaitGroup
	var accepted, refused atomic.Int64
	for i := range 60 {
		coming.Go(func() {
			var r reader
			var err error
			if i%2 == 0 {
				r, err = openSSE(s.url, "topic=a", "")
			} else {
				r, err = openWS(s.url, "topic=a")
			}
			if err != nil {
				refused.Add(1)
				return
			}
			accepted.Add(1)
			t.Cleanup(r.close)
		})
	}
	coming.Wait()
	if accepted.Load() != most || s.Stats().Conns != most {
		t.Errorf("%d were accepted, %d refused, %d are counted", accepted.Load(), refused.Load(), s.Stats().Conns)
	}
}

// A request with Expect that is refused has no body on the wire if its client waits for the answer. So the answer ends the
// connection, and what the client sends then is neither a request nor the body.
func TestRefusedExpect(t *testing.T) {
	s, _ := guarded(t, Config{MaxMessage: 1000, Mercure: mercureTestConfig().Mercure})
	token := "Authorization: Bearer " + user(t, "alice") + "\r\n"
	long := "Content-Length: 1000000\r\n"
	for _, c := range []struct {
		head   string
		status int
	}{
		{"POST /publish?topic=a HTTP/1.1\r\nContent-Length: 100\r\n", 401},
		{"POST /publish?topic=$x HTTP/1.1\r\nContent-Length: 100\r\n" + token, 400},
		{"POST /publish?topic=a HTTP/1.1\r\n" + long + token, 413},
		{"POST /nothing HTTP/1.1\r\nContent-Length: 100\r\n" + token, 404},
		{"PUT /publish?topic=a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + token, 405},
		{"POST /.well-known/mercure HTTP/1.1\r\nContent-Length: 100\r\n", 401},
		{"POST /disconnect?user=x HTTP/1.1\r\nContent-Length: 100\r\n", 401},
		{"GET /events?topic=a HTTP/1.1\r\nContent-Length: 100\r\n" + token, 400},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		must(t, err)
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(readTimeout))
		in := bufio.NewReader(conn)
		ready := "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"
		for i, request := range []string{ready, c.head + "Host: localhost\r\nExpect: 100-continue\r\n\r\n"} {
			io.WriteString(conn, request)
			answer, err := http.ReadResponse(in, nil)
			must(t, err)
			io.Copy(io.Discard, answer.Body)
			if want := [...]int{200, c.status}[i]; answer.StatusCode != want || answer.Close != (i == 1) {
				t.Errorf("%s: answer %d is %s, want %d, close %t", c.head, i, answer.Status, want, answer.Close)
			}
		}
		io.WriteString(conn, ready) // the connection may have ended
		conn.(*net.TCPConn).CloseWrite()
		if rest, _ := io.ReadAll(in); len(rest) > 0 {
			t.Errorf("%s: then %q", c.head, rest)
		}
	}
	if n := s.Stats().Published; n != 0 {
		t.Errorf("%d events were published", n)
	}
}
