package websocket

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/durationtest"
	"github.com/socknotify/socknotify/park"
)

// awaitTicks waits until an idle timeout of another connection has expired on the lot of each
// server. A timeout that is over would have ended its connection by then.
func awaitTicks(t *testing.T, servers ...*Server) {
	t.Helper()
	expired := make(chan error, len(servers))
	for _, s := range servers {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer ln.Close()
		client, err := net.Dial("tcp", ln.Addr().String())
		must(t, err)
		defer client.Close()
		conn, err := ln.Accept()
		must(t, err)
		must(t, s.Lots()[0].ParkWith(conn, park.Options{IdleTimeout: 1}, func(conn net.Conn) {
			expired <- conn.Close()
		}))
	}
	for range servers {
		must(t, <-expired)
	}
}

// smallBuffers makes the system queue little for a client that does not read.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(32 << 10)
	}
	return c, err
}

// wantAfterPings reads a frame of the server behind pings, which it does not answer.
func (p *peer) wantAfterPings(s *Server, first byte, length int) {
	p.Helper()
	for {
		f, payload := p.next()
		if f == 0x80|opPing && s.PingInterval < time.Hour {
			continue
		}
		if f != first || len(payload) != length {
			p.Fatalf("frame %#x of %d bytes, want %#x of %d", f, len(payload), first, length)
		}
		return
	}
}

// With the longest durations in its fields a server works as without timeouts: while a connection
// is idle, has sent half a message, has not answered a ping, does not take what is queued, and has
// not answered a close frame.
func TestLongestDurations(t *testing.T) {
	t.Parallel() // it waits
	durationtest.Longest(t, new(Server), func(t *testing.T, set func(*Server)) {
		kinds := []string{"park", "park TLS", "opaque"}
		servers, peers := make([]*Server, len(kinds)), make([]*peer, len(kinds))
		conns, ended := make([]*Conn, len(kinds)), make([]ends, len(kinds))
		for i, kind := range kinds {
			opened := make(chan *Conn, 1)
			ended[i] = make(ends, 1)
			s := &Server{OnMessage: echo, OnClose: ended[i].closed, MaxQueued: 1 << 30,
				PingInterval: time.Millisecond,
				PongTimeout:  soon, WriteTimeout: soon, CloseTimeout: soon,
				OnOpen: func(c *Conn, _ *http.Request) error { opened <- c; return nil }}
			set(s)
			h := serve(t, kind, s, func(l net.Listener) net.Listener { return smallBuffers{l} })
			servers[i], peers[i] = s, h.connect(t, "")
			conns[i] = <-opened
		}
		message, piece := text("half a message"), make([]byte, 256<<10)
		awaitTicks(t, servers...)
		for _, p := range peers {
			p.send(message[:5]...)
		}
		awaitTicks(t, servers...)
		pieces := make([]int, len(kinds))
		for i, p := range peers {
			p.send(message[5:]...)
			p.wantAfterPings(servers[i], 0x80|byte(Text), len("half a message"))
			for ; servers[i].Stats().QueuedBytes == 0; pieces[i]++ {
				must(t, conns[i].Write(Binary, piece))
			}
		}
		awaitTicks(t, servers...)
		for i, p := range peers {
			for range pieces[i] {
				p.wantAfterPings(servers[i], 0x80|byte(Binary), len(piece))
			}
			p.send(text("last")...)
			p.wantAfterPings(servers[i], 0x80|byte(Text), len("last"))
			must(t, conns[i].Close(CodeNormal, ""))
			p.wantAfterPings(servers[i], 0x80|opClose, 2)
		}
		awaitTicks(t, servers...)
		for i, p := range peers {
			select {
			case err := <-ended[i]:
				t.Errorf("%s: ended before the close frame was answered: %v", kinds[i], err)
			default:
			}
			p.send(closing(CodeNormal, "")...)
			p.wantEnd()
			wantCode(t, ended[i].wait(t), CodeNormal, false)
		}
	})
}
