package tunnel

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"
	"github.com/socknotify/socknotify/internal/test/testclock"
)

// The end of each frame is known, however the bytes are cut.
func TestFrames(t *testing.T) {
	for _, frame := range []string{
		"\x81\x00", "\x89\x80mask", "\x81\x05hello", "\x81\x85maskhello", "\x01\x7d" + string(make([]byte, 125)),
		"\x82\x7e\x00\x7e" + string(make([]byte, 126)), "\x82\xfe\x01\x00mask" + string(make([]byte, 256)),
		"\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00" + string(make([]byte, 1<<16)),
		"\x82\xff\x00\x00\x00\x00\x00\x00\x00\x00mask", "\x82\x7e\x00\x00",
	} {
		text := frame + frame
		for _, size := range []int{1, 2, 3, 5, len(frame) - 1, len(frame), len(text)} {
			var f frames
			at := 0
			for at < len(text) {
				n := min(max(size, 1), len(text)-at)
				f.skip([]byte(text[at : at+n]))
				at += n
				if want := at%len(frame) == 0; f.between() != want {
					t.Fatalf("%.20q, %d bytes at once: between frames %t after %d of %d", frame, size, f.between(), at, len(frame))
				}
			}
		}
	}
}

// Each side gets its last bytes and the end of the stream, and what the other has sent before, and
// may answer. What it answers is not passed on.
func TestFarewell(t *testing.T) {
	eachTunnel(t, func(t *testing.T, join func(testing.TB, *Tunnels) (near, far net.Conn)) {
		g, closed := newTunnels(t, &Tunnels{Logger: conntest.Quiet})
		near, far := join(t, g)
		conntest.Send(t, near, "to")
		conntest.Expect(t, far, "to")
		conntest.Send(t, far, "fro")
		conntest.Expect(t, near, "fro")
		g.resting(t, 1)
		if g.Stats().Unparkable > 0 {
			t.Skip("a goroutine copies at any time")
		}
		for tn := range g.All() {
			tn.Farewell([]byte("bye"), []byte("bye"), time.Hour)
			tn.Farewell([]byte("once"), []byte("once"), time.Hour)
		}
		conntest.Expect(t, near, "bye")
		conntest.Expect(t, far, "bye")
		conntest.Send(t, near, "an answer")
		near.Close()
		if got := lastOf(far); got != `"", EOF` {
			t.Error(got)
		}
		far.Close()
		check.OK(t, await.Value(t, closed))
	})
}

// A peer that does not end its stream has it ended after the delay.
func TestFarewellDelay(t *testing.T) {
	clock := testclock.Install(t)
	for _, delay := range []time.Duration{0, time.Second} {
		g, closed := newTunnels(t, &Tunnels{})
		a, near := conntest.Pair(t, "tcp")
		b, far := conntest.Pair(t, "tcp")
		tn, err := g.JoinWith(a, b, Options{})
		check.OK(t, err)
		tn.Farewell(nil, []byte("bye"), delay)
		clock.Advance(delay)
		check.OK(t, await.Value(t, closed))
		conntest.ExpectRest(t, near, "")
		conntest.ExpectRest(t, far, "bye")
		tn.Farewell([]byte("late"), nil, 0)
	}
}

// No last bytes come into the middle of others.
func TestFarewellToSlowPeer(t *testing.T) {
	g, closed := newTunnels(t, &Tunnels{})
	a, near := conntest.Pair(t, "tcp")
	b, far := conntest.Pair(t, "tcp")
	conntest.Small(t, near, b)
	tn, err := g.JoinWith(a, b, Options{})
	check.OK(t, err)
	go func() {
		near.Write(pattern(8 << 20))
		near.(*net.TCPConn).CloseWrite()
	}()
	await.Until(t, "bytes are under way", func() bool { return g.Stats().QueuedBytes > 0 })
	tn.Farewell([]byte("bye"), []byte("not in the middle"), time.Hour)
	conntest.ExpectRest(t, near, "bye")
	if got := lastOf(far); got != "8388608 bytes, EOF" {
		t.Error(got)
	}
	far.Close()
	check.OK(t, await.Value(t, closed))
}

// A WebSocket gets the last bytes between two frames, and not inside of one.
func TestFarewellBetweenFrames(t *testing.T) {
	clock := testclock.Install(t)
	const whole, part = "\x81\x05hello", "\x81\x05hel"
	for _, c := range []struct{ fromClient, fromBackend, client, backend string }{
		{whole, whole, `"bye", EOF`, `"bye", EOF`},
		{part, whole, `"bye", EOF`, `"", EOF`},
		{whole, part, `"", EOF`, `"bye", EOF`},
		{whole[:1], whole[:1], `"", EOF`, `"", EOF`},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%q, %q, TLS %t", c.fromClient, c.fromBackend, secure), func(t *testing.T) {
				p := newProxyRun(t, false, false, secure, func(p *proxyRun) {
					p.g.TrackFrames = true
					p.proxy.ModifyResponse = func(r *http.Response) error {
						r.Header.Set("Upgrade", "WebSocket")
						r.Request.Header.Set("Upgrade", "WebSocket")
						return nil
					}
				})
				client, backend := p.dial("")
				conntest.Send(t, client, c.fromClient)
				conntest.Expect(t, backend, c.fromClient)
				conntest.Send(t, backend, c.fromBackend)
				conntest.Expect(t, client, c.fromBackend)
				p.g.resting(t, 1)
				for tn := range p.g.All() {
					tn.Farewell([]byte("bye"), []byte("bye"), time.Second)
				}
				clock.Advance(time.Second)
				if got := lastOf(client); got != c.client {
					t.Errorf("the client got %s", got)
				}
				if got := lastOf(backend); got != c.backend {
					t.Errorf("the backend got %s", got)
				}
				check.OK(t, await.Value(t, p.closed))
			})
		}
	}
}
