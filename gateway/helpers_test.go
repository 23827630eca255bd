package gateway

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/freeport"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/park"
)

func TestMain(m *testing.M) {
	if playRole() {
		return
	}
	leaks.Main(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits for something that must come.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	await.Until(t, what, f)
}

// A site is a gateway on a node of its own.
type site struct {
	*Gateway
	t    testing.TB
	node *Node
	http *park.HTTPServer
	url  string
}

// allowAll is what a client may do without tokens.
var allowAll = Grant{Read: []string{">"}, Write: []string{">"}, Presence: []string{">"}}

// js returns JetStream as the gateway's connection has it.
func (s *site) js() jetstream.JetStream { return must1(jetstream.New(s.config.Conn)) }

var quiet = slog.New(slog.DiscardHandler)

// newSite starts a node with its files in a folder, and a gateway on it.
func newSite(t testing.TB, store string, config Config) *site {
	t.Helper()
	return newSiteOn(t, newNode(t, NodeConfig{Store: store}), config)
}

// newNode starts a node.
func newNode(t testing.TB, config NodeConfig) *Node {
	t.Helper()
	if config.Name == "" {
		config.Name = "one"
	}
	config.Logger = cmp.Or(config.Logger, quiet)
	node, err := Start(config)
	must(t, err)
	t.Cleanup(node.Close)
	return node
}

// newSiteOn starts a gateway on a node.
func newSiteOn(t testing.TB, node *Node, config Config) *site {
	t.Helper()
	config.Conn = cmp.Or(config.Conn, node.Conn)
	if config.Logger == nil {
		config.Logger = quiet
	}
	g, err := New(t.Context(), config)
	must(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := &park.HTTPServer{Server: &http.Server{Handler: g, ConnState: smallBuffers, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)}}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ln) }()
	s := &site{g, t, node, server, "http://" + ln.Addr().String()}
	t.Cleanup(func() { s.stop(server, ended) })
	return s
}

func (s *site) stop(server *park.HTTPServer, ended chan error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(s.t, s.Shutdown(ctx))
	server.Close()
	<-ended
	if n := s.access.Clients.Load(); n != 0 {
		s.t.Errorf("%d clients are left", n)
	}
	if n := s.Stats().QueuedBytes; n != 0 {
		s.t.Errorf("%d bytes are queued for no client", n)
	}
	if n := len(s.hub.All()); n != 0 {
		s.t.Errorf("%d topics are left without clients", n)
	}
}

// smallBuffers makes the system queue little for a client that does not read.
func smallBuffers(conn net.Conn, state http.ConnState) {
	if state == http.StateNew {
		conn.(*net.TCPConn).SetWriteBuffer(32 << 10)
	}
}

// publish publishes, and returns the id.
func (s *site) publish(topic, data string) string {
	s.t.Helper()
	r, err := s.Publish(context.Background(), topic, []byte(data), "")
	must(s.t, err)
	return r.ID
}

var roundTripper = &http.Transport{DisableKeepAlives: true}

// request makes a request and returns the status and the body.
func (s *site) request(method, path, body string, header ...string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	must(s.t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := roundTripper.RoundTrip(r)
	must(s.t, err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	must(s.t, err)
	return answer.StatusCode, string(b)
}

// readTimeout bounds the time between two lines that a client gets.
var readTimeout = 2 * time.Minute

func freeAddr(t testing.TB) string { return freeport.Addrs(t, 1)[0] }

// A proxy is between a client of NATS and its server. While mute is set, what the server says is lost.
type proxy struct {
	address string
	mute    atomic.Bool
}

func newProxy(t testing.TB, to string) *proxy {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{address: ln.Addr().String()}
	var working sync.WaitGroup
	working.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			relay := func(to, from net.Conn, mute *atomic.Bool) {
				defer to.Close()
				buf := make([]byte, 32<<10)
				for {
					n, err := from.Read(buf)
					if err != nil {
						return
					}
					if mute == nil || !mute.Load() {
						to.Write(buf[:n])
					}
				}
			}
			working.Go(func() { relay(server, client, nil) })
			working.Go(func() { relay(client, server, &p.mute) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		working.Wait() // the client has closed its connections
	})
	return p
}

// A reader is a client that reads events, by any of the three ways.
type reader interface {
	next() (message, error)
	close()
}

// A message is what a client gets.
type message struct {
	Topic, ID, Data, Gap string
	Missed               []event.Miss // of a gap
	name                 string       // of Server-Sent Events
}

// sseReader reads Server-Sent Events as a browser does: lastID is kept between blocks.
type sseReader struct {
	conn   net.Conn
	in     *bufio.Reader
	lastID string
	header http.Header
}

// openSSE subscribes, to at least one durable topic. query is the query of the URL.
func openSSE(address, query, lastID string) (*sseReader, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(conn, "GET /events?%s HTTP/1.1\r\nHost: localhost\r\n", query)
	if lastID != "" {
		fmt.Fprintf(conn, "Last-Event-ID: %s\r\n", lastID)
	}
	io.WriteString(conn, "\r\n")
	in := bufio.NewReader(conn)
	conn.SetReadDeadline(time.Now().Add(readTimeout))
	answer, err := http.ReadResponse(in, nil)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	r := &sseReader{conn: conn, in: in, lastID: lastID, header: answer.Header}
	for { // the time to retry, and the id with which the client begins
		line, err := in.ReadString('\n')
		if err != nil {
			conn.Close()
			return nil, err
		}
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			r.lastID = strings.TrimSpace(id)
			break // what follows is the end of the block, or a gap
		}
	}
	return r, nil
}

func (r *sseReader) next() (m message, err error) {
	var data []string
	id := r.lastID
	for {
		r.conn.SetReadDeadline(time.Now().Add(readTimeout))
		line, err := r.in.ReadString('\n')
		if err != nil {
			return m, err
		}
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		if line == "" { // an id counts when its block has ended
			r.lastID = id
		}
		switch {
		case line == "" && data != nil:
			m.ID, m.Data = r.lastID, strings.Join(data, "\n")
			if m.name == "gap" {
				return m, json.Unmarshal([]byte(m.Data), &struct {
					Reason *string       `json:"reason"`
					Missed *[]event.Miss `json:"missed"`
				}{&m.Gap, &m.Missed})
			}
			return m, nil
		case field == "id":
			id = value
		case field == "event":
			m.name = value
		case field == "data":
			data = append(data, value)
		}
	}
}

func (r *sseReader) close() { r.conn.Close() }

// wsReader reads from a WebSocket, by a library of others.
type wsReader struct {
	conn  net.Conn
	in    io.Reader
	first greetingMessage
}

// openWS subscribes, and reads the first message.
func openWS(address, query string) (*wsReader, error) {
	r, err := dialWS(address, query)
	if err != nil {
		return nil, err
	}
	b, err := r.read()
	if err == nil {
		err = json.Unmarshal(b, &r.first)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// dialWS subscribes.
func dialWS(address, query string) (*wsReader, error) {
	dialer := ws.Dialer{Timeout: readTimeout}
	conn, in, _, err := dialer.Dial(context.Background(), "ws"+strings.TrimPrefix(address, "http")+"/socket?"+query)
	if err != nil {
		return nil, err
	}
	r := &wsReader{conn: conn, in: conn}
	if in != nil {
		r.in = io.MultiReader(bytes.NewReader(must1(in.Peek(in.Buffered()))), conn)
	}
	return r, nil
}

func must1[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (r *wsReader) read() ([]byte, error) {
	r.conn.SetReadDeadline(time.Now().Add(readTimeout))
	b, _, err := wsutil.ReadServerData(struct {
		io.Reader
		io.Writer
	}{r.in, r.conn})
	return b, err
}

func (r *wsReader) next() (m message, err error) {
	b, err := r.read()
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	return m, err
}

func (r *wsReader) close() { r.conn.Close() }

// pollReader polls.
type pollReader struct {
	url    string
	topics []string
	after  []string
	have   []message
}

func (r *pollReader) next() (message, error) {
	for len(r.have) == 0 {
		q := url.Values{"topic": r.topics, "after": r.after}
		request, _ := http.NewRequest("GET", r.url+"/poll?"+q.Encode(), nil)
		answer, err := (&http.Client{Transport: roundTripper, Timeout: readTimeout}).Do(request)
		if err != nil {
			return message{}, err
		}
		var got struct {
			Events []message
			Last   []string
			Gap    string
			Missed []event.Miss
		}
		b, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err == nil && answer.StatusCode != http.StatusOK {
			err = errors.New(answer.Status)
		}
		if err == nil {
			err = json.Unmarshal(b, &got)
		}
		if err != nil {
			return message{}, err
		}
		r.after = got.Last
		if got.Gap != "" {
			r.have = append(r.have, message{Gap: got.Gap, Missed: got.Missed})
		}
		r.have = append(r.have, got.Events...)
	}
	m := r.have[0]
	r.have = r.have[1:]
	return m, nil
}

func (r *pollReader) close() {}

// expect checks the next message of a client.
func expect(t testing.TB, r reader, want message) {
	t.Helper()
	got, err := r.next()
	must(t, err)
	if got.Data != want.Data && want.Gap == "" || got.Gap != want.Gap ||
		want.Topic != "" && got.Topic != want.Topic ||
		want.ID != "" && got.ID != want.ID {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

// The messages that clients get, as docs/gateway.md says.
type (
	greetingMessage struct {
		Client string
		Last   []string
		Gap    string
		Missed []event.Miss
	}
	pollMessage struct {
		Events []event.Envelope
		Last   []string
		Gap    string
		Missed []event.Miss
	}
	answerMessage struct {
		Ref       uint64
		Published *Receipt
		Error     *struct {
			Status int
			Text   string
			Retry  int64
		}
	}
	subscriptionMessage struct {
		Context, ID, Type, Topic, Subscriber string
		Active                               bool
		Payload                              json.RawMessage
		Last                                 string `json:"lastEventID"`
	}
)

const (
	mostPings = 20      // in a second
	mostHead  = 4 << 10 // bytes of a message beside its event
)
