package http2

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/sse"
)

// A client that opens event streams and resets them at once gets its places back.
func TestEventStreamRapidReset(t *testing.T) {
	x := serveEvents(t, new(sse.Server), false)
	p := dial(t, x.url)
	go p.drain()
	for i := range 3000 {
		p.get(id(i))
		p.WriteRSTStream(id(i), http2.ErrCodeCancel)
		if p.send() != nil {
			break // too many at once
		}
	}
	p.conn.Close()
	until(t, "all streams have ended", func() bool { return x.Stats().Conns == 0 })
	until(t, "all connections have ended", func() bool { return x.http2.open() == 0 })
}

// drain reads until the connection ends.
func (p *peer) drain() {
	for {
		if _, err := p.ReadFrame(); err != nil {
			return
		}
	}
}

// open returns the number of connections.
func (s *Server) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// A client with as many streams as it may open that reads nothing costs a bounded number of bytes,
// and no goroutine but the one that writes to it. Its streams end by WriteTimeout.
func TestEventStreamsNotRead(t *testing.T) {
	x := serveEvents(t, &sse.Server{
		MaxQueued: 64 << 10, WriteTimeout: 200 * time.Millisecond, Heartbeat: -1}, false)
	p := dial(t, x.url)
	for i := range defaultStreams {
		p.get(id(i))
		p.WriteWindowUpdate(id(i), 1<<30)
	}
	p.WriteWindowUpdate(0, 1<<30)
	must(t, p.send())
	until(t, "the streams are open", func() bool { return x.Stats().Accepted == defaultStreams })
	before := runtime.NumGoroutine()
	e := event(t, strings.Repeat("x", 8<<10))
	for x.Stats().Conns > 0 {
		x.Broadcast(e)
		if n := x.Stats().QueuedBytes; n > defaultStreams*80<<10 {
			t.Fatalf("%d bytes are queued", n)
		}
		await.Pause(time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before+50 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	for range defaultStreams {
		x.ends(t, park.ErrSlow)
	}
}

// A connection that is parked with open streams answers as many pings as a client may send at once.
func TestPingsWhileParked(t *testing.T) {
	x := serveEvents(t, new(sse.Server), false)
	p := dial(t, x.url)
	for i := range 100 {
		p.get(id(i))
	}
	must(t, p.send())
	for range 200 {
		p.next()
	}
	for range 50 {
		x.waits(t, 100, 1)
		p.synced()
	}
	for range maxAsks - 100 {
		p.WritePing(false, [8]byte{})
	}
	must(t, p.send())
	for range maxAsks - 100 {
		p.want("PING")
	}
	x.waits(t, 100, 1)
}
