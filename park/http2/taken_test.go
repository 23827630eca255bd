package http2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	parkstream "github.com/socknotify/socknotify/stream"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/sse"
)

// get opens a stream with a GET request.
func (p *peer) get(stream uint32) {
	p.openPart(stream, true, true, ":method", "GET", ":scheme", "http", ":authority", "x", ":path", "/")
}

// retryNone leaves the retry time out of what clients get.
const retryNone = -1

func event(t testing.TB, data string) *sse.Prepared {
	e, err := sse.Prepare(sse.Event{Data: data})
	must(t, err)
	return e
}

// A site is a server of clients of package sse.
type site struct {
	*sse.Server
	http2  *Server
	closed chan error // what OnClose gets
	url    string
}

func serveEvents(t testing.TB, events *sse.Server, secure bool) *site {
	x := &site{Server: events, closed: make(chan error, 100_000)}
	events.Retry = retryNone
	events.OnClose = func(_ *sse.Conn, err error) { x.closed <- err }
	x.http2 = &Server{Linger: -1, Server: &http.Server{Handler: events}}
	x.url = serve(t, x.http2, secure)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		must(t, events.Shutdown(ctx))
		if st := events.Stats(); st.Conns != 0 || st.Parked != 0 || st.QueuedBytes != 0 {
			t.Errorf("left behind: %+v", st)
		}
	})
	return x
}

// waits waits until all n clients are parked, and the connections below them.
func (x *site) waits(t testing.TB, clients, conns int) {
	t.Helper()
	until(t, "everything is parked", func() bool {
		return x.Stats().Parked == clients && x.http2.Stats().Parked == conns
	})
}

func (x *site) ends(t testing.TB, want error) {
	t.Helper()
	if err := await.Receive(t, "OnClose", x.closed); !errors.Is(err, want) {
		t.Errorf("OnClose got %v, want %v", err, want)
	}
}

// A client of package sse needs no goroutine over HTTP/2: it and its connection are parked. It gets
// events and heartbeats, and ends in each way.
func TestEventStreams(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		conns := make(chan *sse.Conn, 1000)
		x := serveEvents(t, &sse.Server{OnOpen: func(c *sse.Conn, _ *http.Request, _ string) error {
			conns <- c
			return c.Send(sse.Event{Data: "welcome"})
		}}, secure)
		p := dial(t, x.url)
		const streams = 100
		open := func(i int) *sse.Conn {
			p.get(id(i))
			must(t, p.send())
			p.want(fmt.Sprint(id(i), " status 200"), fmt.Sprint(id(i), ` data ":\n" end false`),
				fmt.Sprint(id(i), ` data "data: welcome\n\n" end false`))
			return <-conns
		}
		first := open(0)
		x.waits(t, 1, 1)
		before := runtime.NumGoroutine()
		for i := range streams - 1 {
			open(i + 1)
		}
		x.waits(t, streams, 1)
		until(t, "there are no more goroutines than before", func() bool { return runtime.NumGoroutine() <= before+8 })
		if sent := x.Broadcast(event(t, "to all")); sent != streams {
			t.Errorf("sent to %d", sent)
		}
		for range streams {
			if got := p.next(); !strings.HasSuffix(got, ` data "data: to all\n\n" end false`) {
				t.Fatal(got)
			}
		}
		if got, want := first.RemoteAddr().String(), p.conn.LocalAddr().String(); got != want {
			t.Errorf("the address is %s, want %s", got, want)
		}
		p.WriteRSTStream(id(1), http2.ErrCodeCancel)
		must(t, p.send())
		x.ends(t, io.EOF)
		must(t, first.Close())
		p.want(`1 data "" end true`)
		x.ends(t, parkstream.ErrClosed)
		again := open(streams)
		must(t, again.Abort())
		p.want(fmt.Sprint(id(streams), " reset CANCEL"))
		x.ends(t, parkstream.ErrClosed)
		p.synced()
		x.waits(t, streams-2, 1)
		p.conn.Close()
		for range streams - 2 {
			x.ends(t, io.EOF)
		}
	})
}

// A client that has nothing to get gets comments, and Shutdown sends clients away.
func TestEventStreamTimers(t *testing.T) {
	x := serveEvents(t, &sse.Server{Heartbeat: 10 * time.Millisecond}, false)
	p := dial(t, x.url)
	p.get(1)
	must(t, p.send())
	p.want("1 status 200", `1 data ":\n" end false`)
	for range 3 {
		p.want(`1 data ":\n\n" end false`)
	}
	ended := make(chan error)
	go func() { ended <- x.Shutdown(context.Background()) }()
	x.ends(t, park.ErrServerClosed)
	must(t, <-ended)
	for f := ""; f != `1 data "" end true`; f = p.next() {
		if f == "the end" {
			t.Fatal(f)
		}
	}
	p.get(3)
	must(t, p.send())
	p.want("3 status 503")
}

// What the windows of the stream and of the connection do not permit is queued, and sent when they
// open, by whatever steps. A client that lets too much be queued, or takes nothing, is closed.
func TestEventStreamWindows(t *testing.T) {
	x := serveEvents(t, &sse.Server{MaxQueued: 10 << 10}, false)
	p := dial(t, x.url)
	p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 4})
	p.get(1)
	must(t, p.send())
	p.want("1 status 200", `1 data ":\n" end false`)
	x.waits(t, 1, 1)
	x.Broadcast(event(t, "abc"))
	p.want(`1 data "da" end false`)
	x.Broadcast(event(t, "xyz"))
	for _, c := range "ta: abc\n\ndata: xyz\n\n" {
		x.waits(t, 1, 1)
		p.WriteWindowUpdate(1, 1)
		must(t, p.send())
		p.want(fmt.Sprintf("1 data %q end false", string(c)))
	}
	x.Broadcast(event(t, strings.Repeat("y", 100)))
	for x.Broadcast(event(t, strings.Repeat("z", 1000))) > 0 {
	}
	p.want("1 reset CANCEL")
	x.ends(t, park.ErrSlow)

	x = serveEvents(t, &sse.Server{WriteTimeout: 20 * time.Millisecond}, false)
	p = dial(t, x.url)
	p.get(1)
	p.get(3)
	must(t, p.send())
	for range 4 {
		p.next()
	}
	x.waits(t, 2, 1)
	x.Broadcast(event(t, strings.Repeat("z", 50<<10))) // the window of the connection is shared
	for f := ""; !strings.HasSuffix(f, "reset CANCEL"); f = p.next() {
		if f == "the end" {
			t.Fatal(f)
		}
	}
	x.ends(t, park.ErrSlow)
}
