package http2

import (
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
)

// Clients of the usual kinds may ask for as many answers as they do, for years. Floods end.
func TestAsks(t *testing.T) {
	const frame = -1 // a frame moves something, instead of time that passes
	type step struct {
		times int
		after time.Duration // before each time
	}
	const pause = time.Hour
	for name, c := range map[string]struct {
		steps []step // round after round
		want  int    // the answers that the client gets at most in 1,000,000 rounds, or 0 for all
	}{
		"gRPC, keepalive":            {[]step{{1, 10 * time.Second}}, 0},
		"gRPC, bandwidth":            {[]step{{1, frame}, {1, 0}}, 0},
		"a browser":                  {[]step{{1, 15 * time.Second}, {1, frame}}, 0},
		"a proxy that probes":        {[]step{{1, 100 * time.Millisecond}}, 0},
		"settings for each request":  {[]step{{3, 0}, {1, frame}}, 0},
		"as many as are allowed":     {[]step{{1, time.Second / asksPerSecond}}, 0},
		"many after a pause":         {[]step{{maxAsks - 1, 0}, {1, pause}}, 0},
		"a flood":                    {[]step{{1, 0}}, maxAsks},
		"a flood of some a second":   {[]step{{1, time.Millisecond}}, maxAsks * 10 / 9},
		"a flood beside few frames":  {[]step{{100, 0}, {1, frame}}, maxAsks * 10 / 8},
		"a flood beside many frames": {[]step{{asksPerFrame + 1, 0}, {1, frame}}, maxAsks * (asksPerFrame + 2)},
		"a flood after a pause":      {[]step{{1, pause}, {3 * maxAsks, 0}}, 2 * maxAsks},
	} {
		now := began
		var a asks
		got, ended := 0, false
		for round := 0; round < 1_000_000 && !ended && got <= 1_000_000; round++ {
			for _, s := range c.steps {
				for range s.times {
					if s.after == frame {
						a.earn()
						continue
					}
					now = now.Add(s.after)
					if ended = ended || !a.take(func() time.Time { return now }); !ended {
						got++
					}
				}
			}
		}
		if ended != (c.want > 0) || ended && (got < maxAsks || got > c.want) {
			t.Errorf("%s: it has ended: %v, after %d answers, want at most %d", name, ended, got, c.want)
		}
	}
}

// A client that asks often beside its requests, as fast as it can, is not ended; the same questions
// alone are a flood (TestAbuse).
func TestAsksBesideRequests(t *testing.T) {
	p := dial(t, serve(t, &Server{Server: handler(echo)}, false))
	ended := make(chan string, 1)
	go func() { ended <- lastAnswer(p.conn, true) }()
	for i := range 2000 {
		p.request(id(i), true)
		for range asksPerFrame {
			p.WritePing(false, [8]byte{})
		}
		p.WriteSettings()
		must(t, p.send())
	}
	p.WritePing(false, mark)
	must(t, p.send())
	if end := await.Receive(t, "an answer", ended); end != stays {
		t.Errorf("the end is %q", end)
	}
}
