package tunnel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/serving/parking"
	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/sockettest"
)

// Tunnels between connections of every kind, and those of a reverse proxy, carry bytes both ways,
// while peers read slowly, end their streams, reset and stop, and the tunnels are aborted and shut
// down. What a peer receives is a beginning of what the other has sent, and all of it if both have
// ended their streams; and nothing is left behind.
func TestTunnelStress(t *testing.T) {
	for end := time.Now().Add(conntest.StressDuration(t)); ; {
		t.Run("round", tunnelStressRound) // a test of its own, so that its servers end
		if t.Failed() || time.Now().After(end) {
			return
		}
	}
}

func tunnelStressRound(t *testing.T) {
	g := &Tunnels{Logger: conntest.Quiet}
	if rand.IntN(2) == 0 {
		g.IdleTimeout = conntest.Timeout
	}
	var proxied sync.Map // of *stressTunnel by the client's address
	g.OnClose = func(tunnel *Tunnel, err error) {
		x, ok := tunnel.Value.(*stressTunnel)
		if !ok {
			client, _ := tunnel.Conns()
			known, _ := proxied.Load(client.RemoteAddr().String())
			x = known.(*stressTunnel)
		}
		x.err = err
		close(x.closed)
	}
	var all sync.WaitGroup
	for range rand.IntN(3) {
		for _, x := range proxiedStressTunnels(t, g) {
			proxied.Store(x.peers[0].LocalAddr().String(), x)
			all.Go(func() { x.exchange(t, nil, true) })
		}
	}
	for range 2 {
		for name1, kind1 := range conntest.Kinds {
			for name2, kind2 := range conntest.Kinds {
				if rand.IntN(8) > 0 {
					continue
				}
				x := &stressTunnel{name: name1 + " and " + name2, closed: make(chan struct{})}
				var a, b net.Conn
				a, x.peers[0] = kind1(t)
				b, x.peers[1] = kind2(t)
				all.Go(func() { x.run(t, g, a, b) })
			}
		}
	}
	if rand.IntN(3) == 0 {
		await.Pause(time.Duration(rand.IntN(50)) * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(50))*time.Millisecond)
		g.Shutdown(ctx)
		cancel()
	}
	all.Wait()
	check.OK(t, g.Shutdown(context.Background()))
	if s := g.Stats(); s.Conns != 0 || s.QueuedBytes != 0 || s.Parked != 0 || s.Running != 0 || s.Panics != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

// A stressTunnel is a tunnel of TestTunnelStress, with its peers.
type stressTunnel struct {
	name     string
	peers    [2]net.Conn
	sent     [2]int // bytes of each peer
	received [2]int
	failed   [2]error // of reading; nil at the end of the stream
	closed   chan struct{}
	err      error // of OnClose
}

// proxiedStressTunnels returns tunnels that a reverse proxy has made, in which some bytes were sent
// with the request and the answer.
func proxiedStressTunnels(t *testing.T, g *Tunnels) (all []*stressTunnel) {
	early, greeting := sequenceOf(rand.IntN(200)), sequenceOf(rand.IntN(200))
	p := newProxyRun(t, false, rand.IntN(2) == 0, rand.IntN(2) == 0, func(p *proxyRun) {
		p.g, p.greeting = g, greeting
	})
	for range 1 + rand.IntN(4) {
		x := &stressTunnel{name: "proxied", sent: [2]int{len(early), len(greeting)}, closed: make(chan struct{})}
		x.peers[0], x.peers[1] = p.dial(early)
		await.Value(t, p.returned) // the tunnel has begun
		all = append(all, x)
	}
	return all
}

// sequenceOf returns the first n bytes of the sequence.
func sequenceOf(n int) string { return string(pattern(n)) }

func (x *stressTunnel) run(t *testing.T, g *Tunnels, a, b net.Conn) {
	tunnel, err := g.JoinWith(a, b, Options{Value: x})
	if err != nil {
		a.Close()
		b.Close()
		x.close()
		return
	}
	_, half1 := a.(parking.CloseWriter) // otherwise the tunnel ends with one of its directions
	_, half2 := b.(parking.CloseWriter)
	x.exchange(t, tunnel, half1 && half2)
}

func (x *stressTunnel) close() {
	x.peers[0].Close()
	x.peers[1].Close()
}

// exchange sends and receives until the tunnel has ended, which is nil for one that is not aborted.
// half reports whether both of its connections have a half-close.
func (x *stressTunnel) exchange(t *testing.T, tunnel *Tunnel, half bool) {
	defer x.close()
	var all sync.WaitGroup
	graceful := rand.IntN(3) > 0
	for i := range x.peers {
		all.Go(func() { x.send(i, graceful) })
		all.Go(func() { x.read(i) })
	}
	if !graceful {
		await.Pause(time.Duration(rand.IntN(20)) * time.Millisecond)
		switch how := rand.IntN(4); {
		case how == 0 && tunnel != nil:
			tunnel.Abort(io.ErrNoProgress)
		case how <= 1:
			x.peers[rand.IntN(2)].Close()
		case how == 2:
			resetPeer(x.peers[rand.IntN(2)])
		default:
			x.close()
		}
	}
	all.Wait()
	if !graceful { // one of them may be open, with nothing more to send
		x.close()
	}
	<-x.closed
	whole := graceful && half && x.err == nil
	for i := range x.peers {
		sent, got, err := x.sent[1-i], x.received[i], x.failed[i]
		if errors.Is(err, conntest.ErrBytes) || got > sent || whole && (got < sent || err != nil) {
			t.Errorf("%s: peer %d has received %d of %d bytes, %v, closed %v", x.name, i, got, sent, err, x.err)
		}
	}
	if graceful && half && x.err != nil && !errors.Is(x.err, park.ErrServerClosed) {
		t.Errorf("%s: %v", x.name, x.err)
	}
}

// send sends bytes of a sequence, and then the end of the stream.
func (x *stressTunnel) send(i int, graceful bool) {
	conn := x.peers[i]
	for range 1 + rand.IntN(40) {
		size := 1 + rand.IntN(4000)
		if rand.IntN(10) == 0 {
			size = 60 << 10
		}
		b := sockettest.Sequence(x.sent[i], size)
		n, err := conn.Write(b)
		if err != nil {
			x.sent[i] += len(b) // a part of it may arrive
			return
		}
		x.sent[i] += n
		if rand.IntN(6) == 0 {
			await.Pause(time.Duration(rand.IntN(4)) * time.Millisecond)
		}
	}
	if graceful || rand.IntN(2) == 0 {
		conn.(parking.CloseWriter).CloseWrite()
	}
}

// read reads to the end, at times slowly, and checks the bytes.
func (x *stressTunnel) read(i int) {
	conn, buf := x.peers[i], make([]byte, 1+rand.IntN(16<<10))
	slow := rand.IntN(3) == 0 && len(buf) >= 16 // with a few bytes at a time it would need a minute
	for {
		conn.SetReadDeadline(time.Now().Add(conntest.Timeout))
		n, err := conn.Read(buf)
		if !bytes.Equal(buf[:n], sockettest.Sequence(x.received[i], n)) {
			err = fmt.Errorf("%w after %d", conntest.ErrBytes, x.received[i])
		}
		x.received[i] += n
		if err == io.EOF {
			return
		}
		if err != nil {
			x.failed[i] = err
			return
		}
		if slow && rand.IntN(4) == 0 {
			await.Pause(time.Millisecond)
		}
	}
}
