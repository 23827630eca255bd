package http2

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/sse"
)

// Clients with small windows open event streams, reset them, open windows in small steps, close
// their connections, and send pings, while events are sent and streams are closed. Every stream gets
// the events in order without a hole until it ends, OnClose is called once for each, and nothing is
// left behind.
func TestEventStreamStress(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		x := serveEvents(t, &sse.Server{MaxQueued: 4 << 10, WriteTimeout: -1, Heartbeat: -1}, secure)
		until := time.Now().Add(time.Second)
		stop := make(chan bool)
		var clients, senders sync.WaitGroup
		for i := range 8 {
			clients.Go(func() {
				for n := 0; time.Now().Before(until); n++ {
					x.stress(t, fmt.Sprint(i, ".", n))
				}
			})
		}
		senders.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				x.Broadcast(event(t, fmt.Sprintf("%d %s", n, strings.Repeat("x", rand.IntN(300)))))
				await.UpTo(200 * time.Microsecond)
			}
		})
		clients.Wait()
		close(stop)
		senders.Wait()
		accepted := int(x.Stats().Accepted)
		for range accepted {
			err := await.Receive(t, "OnClose", x.closed)
			var failed *net.OpError // a write to a client that has gone
			var reset http2.StreamError
			if !errors.Is(err, io.EOF) && !errors.Is(err, park.ErrSlow) &&
				!errors.As(err, &reset) && !errors.As(err, &failed) {
				t.Errorf("OnClose got %v", err)
			}
		}
		if accepted == 0 {
			t.Error("no stream was opened")
		}
	})
}

// stress is one connection.
func (x *site) stress(t *testing.T, name string) {
	p := dial(t, x.url)
	defer p.conn.Close()
	p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: rand.Uint32N(2000)})
	must(t, p.send())
	var reading sync.WaitGroup
	defer reading.Wait()
	defer p.conn.Close()
	reading.Go(func() { checkEvents(t, name, p) })
	open := 0
	for range rand.IntN(60) {
		stream := id(rand.IntN(open + 1))
		switch rand.IntN(6) {
		case 0, 1:
			p.get(id(open))
			open++
		case 2:
			if open > 0 && stream < id(open) {
				p.WriteRSTStream(stream, http2.ErrCodeCancel)
			}
		case 3:
			p.WritePing(false, [8]byte{})
		case 4:
			p.WriteWindowUpdate(0, 1+rand.Uint32N(5000))
		case 5:
			if open > 0 && stream < id(open) {
				p.WriteWindowUpdate(stream, 1+rand.Uint32N(500))
			}
		}
		if p.send() != nil {
			return
		}
		await.UpTo(time.Millisecond)
	}
}

// checkEvents reads until the connection ends, and checks that the bytes of each stream are whole
// events that follow each other.
func checkEvents(t *testing.T, name string, p *peer) {
	texts := make(map[uint32]string)
	latest := make(map[uint32]int)
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return
		}
		d, ok := f.(*http2.DataFrame)
		if !ok {
			continue
		}
		texts[d.StreamID] += string(d.Data())
		for {
			one, rest, whole := strings.Cut(texts[d.StreamID], "\n")
			if !whole {
				break
			}
			texts[d.StreamID] = rest
			if one == "" || one == ":" {
				continue
			}
			var n int
			if _, err := fmt.Sscanf(one, "data: %d x", &n); err != nil && !strings.HasSuffix(one, " ") {
				t.Errorf("%s, stream %d: %q", name, d.StreamID, one)
				return
			}
			if last, ok := latest[d.StreamID]; ok && n != last+1 {
				t.Errorf("%s, stream %d: event %d after %d", name, d.StreamID, n, last)
				return
			}
			latest[d.StreamID] = n
		}
	}
}
