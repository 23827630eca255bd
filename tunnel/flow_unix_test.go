//go:build unix

package tunnel

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"
	"github.com/socknotify/socknotify/internal/test/testclock"
)

// A direction whose messages come shortly after each other keeps its goroutine between them. One whose
// messages come slowly is parked.
func TestBriskMessages(t *testing.T) {
	defer func(d time.Duration) { bufferPause = d }(bufferPause)
	for _, kind := range []string{"TCP", "TLS"} {
		t.Run(kind, func(t *testing.T) {
			bufferPause = time.Hour
			clock := testclock.Install(t)
			g, closed := newTunnels(t, &Tunnels{})
			a, near := conntest.Kinds[kind](t)
			b, far := conntest.Pair(t, "tcp")
			check.OK(t, g.Join(a, b))
			exchange := func() {
				t.Helper()
				conntest.Send(t, near, "there")
				conntest.Expect(t, far, "there")
				conntest.Send(t, far, "and back")
				conntest.Expect(t, near, "and back")
			}
			for range 5 {
				exchange()
				g.resting(t, 1)
				clock.Advance(briskPause)
			}
			await.Until(t, "both directions have a goroutine", func() bool {
				before := g.Stats().Parks
				for range 3 { // each but the last would be parked before the next one is read
					exchange()
				}
				return g.Stats().Parks == before
			})
			parks := g.Stats().Parks
			for range 100 {
				clock.Advance(time.Second)
				exchange()
			}
			if n := g.Stats().Parks - parks; n != 0 {
				t.Errorf("parked %d times in 100 messages each way", n)
			}
			near.Close()
			far.Close()
			check.OK(t, await.Value(t, closed))
		})
	}
}

// The goroutines of busy directions end when nothing comes any more.
func TestBriskMessagesEnd(t *testing.T) {
	testclock.Install(t)
	g, _ := newTunnels(t, &Tunnels{})
	a, near := conntest.Pair(t, "tcp")
	b, far := conntest.Pair(t, "tcp")
	check.OK(t, g.Join(a, b))
	for range 3 {
		for range 10 {
			conntest.Send(t, near, "there")
			conntest.Expect(t, far, "there")
			conntest.Send(t, far, "and back")
			conntest.Expect(t, near, "and back")
		}
		g.resting(t, 1)
	}
}

// WebSockets that are busy get the last bytes, too, between two frames.
func TestFarewellToBusyPeers(t *testing.T) {
	testclock.Install(t)
	const frame = "\x81\x05hello"
	for _, secure := range []bool{false, true} {
		for _, sending := range []bool{false, true} {
			p := newProxyRun(t, false, true, secure, func(p *proxyRun) {
				p.g.TrackFrames = true
				p.proxy.ModifyResponse = func(r *http.Response) error {
					r.Header.Set("Upgrade", "WebSocket")
					r.Request.Header.Set("Upgrade", "WebSocket")
					return nil
				}
			})
			client, backend := p.dial("")
			for range 10 {
				conntest.Send(t, client, frame)
				conntest.Expect(t, backend, frame)
				conntest.Send(t, backend, frame)
				conntest.Expect(t, client, frame)
			}
			wrote := make(chan error, 1)
			go func() {
				for sending {
					if _, err := io.WriteString(client, frame); err != nil {
						break
					}
				}
				wrote <- nil
			}()
			for range 100 {
				if sending {
					conntest.Expect(t, backend, frame)
				}
			}
			for tn := range p.g.All() {
				tn.Farewell([]byte("bye"), []byte("bye"), time.Hour)
			}
			conntest.Expect(t, client, "bye")
			backend.SetReadDeadline(time.Now().Add(conntest.Timeout))
			got, err := io.ReadAll(backend)
			got, whole := bytes.CutSuffix(got, []byte("bye"))
			if err != nil || !whole || len(got)%len(frame) != 0 || !sending && len(got) > 0 {
				t.Errorf("TLS %t, sending %t: the backend got %d bytes, the last ones %t, %v", secure, sending, len(got), whole, err)
			}
			backend.Close()
			client.Close()
			await.Value(t, wrote)
			await.Value(t, p.closed)
		}
	}
}
