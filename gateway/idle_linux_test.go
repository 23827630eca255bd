package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/idling"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/park"
)

var idleClients = flag.Int("idle", 5000, "clients of TestIdleMemory")

// idleEnv tells the processes of a measurement the number of clients.
const idleEnv = "SOCKNOTIFY_PUSH_IDLE"

func playRole() bool {
	if n, err := strconv.Atoi(os.Getenv(idleEnv)); err == nil {
		idling.Conns = n
	}
	return idling.Roles{"server": playServer, "clients": playClients, "readers": playReaders}.Play()
}

// idleTopics is the number of topics that the clients share, but those of the kind "events own".
const idleTopics = 200

func idleTopic(i int) string { return fmt.Sprint("idle.", i) }

// An idle client of Server-Sent Events needs at most 1,200 live bytes with its subscription, and a
// WebSocket at most 1,300; with TLS 1,900 and 2,000. One that has a topic of its own needs at most
// 1,900 with the topic, of which NATS has 850.
//
// With a topic for each of 5,000 clients, 30 measurements had 1,726 to 1,840 bytes. What differs
// belongs to the process, however many clients it has: up to 58 bytes of each are stacks, and up to
// 32 are results of searches for subscribers that nats-server caches, 256 to 1,024 of them.
func TestIdleMemory(t *testing.T) {
	long.Only(t, "it makes thousands of connections, seven times")
	if raceDetector {
		t.Skip("the memory of the race detector would be included")
	}
	idling.Conns = *idleClients
	t.Setenv(idleEnv, strconv.Itoa(idling.Conns))
	idling.Enough(t)
	for _, c := range []struct {
		kind  string
		limit float64
	}{
		{"events", 1200}, {"events own", 1900}, {"socket", 1300}, {"socket compressed", 1300},
		{"events tls", 1900}, {"socket tls", 2000}, {"goroutine", 1 << 20},
	} {
		u := idling.Measure(t, c.kind, c.kind)
		t.Logf("%s: %.0f live bytes for each of %d clients, %d of them stack; RSS %d", c.kind, u.Live(), idling.Conns,
			u.Stack/int64(idling.Conns), u.RSS/int64(idling.Conns))
		if u.Live() > c.limit {
			t.Errorf("%s: %.0f live bytes, want at most %.0f", c.kind, u.Live(), c.limit)
		}
	}
}

func playServer(args []string) {
	store, err := os.MkdirTemp("", "push")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(store)
	node, err := Start(NodeConfig{Name: "one", Store: store, Logger: quiet})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	g, err := New(context.Background(), Config{Conn: node.Conn, Logger: quiet, Heartbeat: time.Hour,
		Compression: 1})
	if err != nil {
		log.Fatal(err)
	}
	var topics [idleTopics]*hub.Feed // all topics have a client before the measurement begins
	for i := range topics {
		if topics[i], err = g.hub.Acquire(context.Background(), idleTopic(i)); err != nil {
			log.Fatal(err)
		}
	}
	for i := range 3000 { // nats-server caches about the last thousand subjects of requests, however many clients there are
		f, err := g.hub.Acquire(context.Background(), fmt.Sprint("warm.", i))
		if err != nil {
			log.Fatal(err)
		}
		g.hub.Release(f)
	}
	cert, _, err := selfcert.New(time.Hour, "127.0.0.1")
	if err != nil {
		log.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	hs := &http.Server{Handler: g}
	settled := func() int { return g.lot.Stats().Parked + g.transports.Sockets.Stats().Parked }
	if args[0] == "goroutine" {
		hs.Handler = g.transports.Subscribe(g.serveBlocking)
		settled = func() int { return int(g.access.Clients.Load()) }
		go hs.Serve(ln)
	} else {
		server := &park.HTTPServer{Server: hs}
		if args[0] == "events tls" || args[0] == "socket tls" {
			hs.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}
			go server.ServeTLS(ln, "", "")
		} else {
			go server.Serve(ln)
		}
	}
	time.Sleep(3 * time.Second) // nats-server frees what its start needed; otherwise that would count as the clients'
	idling.Serve(ln, settled)
}

// serveBlocking is the same gateway as net/http has it by default: a goroutine waits for each client's events.
func (g *Gateway) serveBlocking(_ context.Context, w http.ResponseWriter, r *http.Request, a access.Ask) {
	c := &blockingClient{events: make(chan *event.Event, 16)}
	s := &hub.Subscriber{To: c}
	if g.hub.Join(r.Context(), s, a.Wants) != nil {
		return
	}
	defer g.hub.Leave(s)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Write(append(a.Wants[0].After.Append([]byte("id: ")), "\n\n"...))
	w.(http.Flusher).Flush()
	for {
		select {
		case e := <-c.events:
			w.Write(e.Bytes(event.FormText))
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

type blockingClient struct{ events chan *event.Event }

func (c *blockingClient) Send(_ int, e *event.Event) bool {
	c.events <- e
	return true
}
func (c *blockingClient) Gap(int, string, event.Span) {}
func (c *blockingClient) Flush(context.Context) error { return nil }

func playClients(args []string) {
	address, kind := args[0], args[1]
	path, upgrade := "/events", ""
	if strings.HasPrefix(kind, "socket") {
		path, upgrade = "/socket", "Connection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	}
	if kind == "socket compressed" {
		upgrade += "Sec-WebSocket-Extensions: permessage-deflate\r\n"
	}
	i := 0
	idling.Connect(func() (net.Conn, error) {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return nil, err
		}
		if kind == "events tls" || kind == "socket tls" {
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		}
		i++
		topic := i
		if kind != "events own" {
			topic %= idleTopics
		}
		target := path + "?topic=" + idleTopic(topic)
		_, err = io.WriteString(conn, "GET "+target+" HTTP/1.1\r\nHost: localhost\r\n"+upgrade+"\r\n")
		if err != nil {
			return nil, err
		}
		b := make([]byte, 1024)
		n, err := conn.Read(b)
		if err == nil && bytes.Contains(b[:n], []byte("permessage")) != (kind == "socket compressed") {
			err = fmt.Errorf("answer %q", b[:n])
		}
		return conn, err
	})
}
