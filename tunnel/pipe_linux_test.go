package tunnel

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/serving/nowait"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/sockettest"
	"github.com/socknotify/socknotify/internal/test/testclock"
)

// blocked returns a tunnel whose first peer sends much, while the second one reads nothing. Before it
// begins, the first one has sent more than the second connection can hold: so the tunnel is busy
// until that is full, even if the goroutine that sends the rest gets no processor.
func blocked(t *testing.T, g *Tunnels) (tunnel *Tunnel, near, far net.Conn, wrote chan error, much []byte) {
	t.Helper()
	a, near := conntest.Pair(t, "tcp")
	b, far := conntest.Pair(t, "tcp")
	for _, small := range []net.Conn{b, far} {
		check.OK(t, small.(*net.TCPConn).SetReadBuffer(32<<10))
		check.OK(t, small.(*net.TCPConn).SetWriteBuffer(32<<10))
	}
	check.OK(t, near.(*net.TCPConn).SetWriteBuffer(1<<20))
	check.OK(t, a.(*net.TCPConn).SetReadBuffer(1<<20))
	much, wrote = pattern(16<<20), make(chan error, 1)
	first, err := near.Write(much[:384<<10])
	check.OK(t, err)
	tunnel, err = g.JoinWith(a, b, Options{})
	check.OK(t, err)
	go func() {
		_, err := near.Write(much[first:])
		wrote <- err
	}()
	await.Until(t, "the tunnel holds bytes, and is at rest", func() bool {
		tunnel.mu.Lock()
		defer tunnel.mu.Unlock()
		return !tunnel.a.copying && tunnel.a.rest != nil && g.Stats().Running == 0
	})
	return tunnel, near, far, wrote, much
}

// The kernel moves the bytes of a busy tunnel by a pipe, which is kept while the peer does not
// read. Where there is no pipe, the tunnel copies.
func TestTunnelPipe(t *testing.T) {
	most := len(takenAndReleased())
	if most == 0 {
		t.Skip("the system has no pipes")
	}
	for _, without := range []bool{false, true} {
		var held []*nowait.Pipe
		if without {
			held = takePipes()
		}
		g, closed := newTunnels(t, &Tunnels{})
		tunnel, near, far, wrote, much := blocked(t, g)
		tunnel.mu.Lock()
		if piped := tunnel.a.rest.pipe != nil; piped == without {
			t.Errorf("a pipe: %t, want %t", piped, !without)
		}
		tunnel.mu.Unlock()
		got := make([]byte, len(much))
		far.SetReadDeadline(time.Now().Add(conntest.Timeout))
		if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, much) {
			t.Errorf("%v, or other bytes", err)
		}
		check.OK(t, await.Value(t, wrote))
		g.resting(t, 1)
		near.Close()
		far.Close()
		await.Value(t, closed)
		releasePipes(held)
		if n := len(takenAndReleased()); n != most {
			t.Errorf("%d pipes are left of %d", n, most)
		}
	}
}

// A busy tunnel drops urgent bytes, as a read does, and nothing behind them. They do not hold it up
// either: its goroutine would wait for an hour here.
func TestTunnelUrgent(t *testing.T) {
	most := len(takenAndReleased())
	if most == 0 {
		t.Skip("the system has no pipes")
	}
	defer func(d time.Duration) { pipePause = d }(pipePause)
	pipePause = time.Hour
	for _, network := range []string{"tcp", "unix"} {
		g, closed := newTunnels(t, &Tunnels{})
		a, near := conntest.Pair(t, "tcp")
		b, far := conntest.Pair(t, network)
		check.OK(t, g.Join(a, b))
		piece := bytes.ReplaceAll(pattern(8<<20), []byte{'!'}, []byte{'?'})
		const pieces = 8
		go func() {
			for range pieces {
				if _, err := near.Write(piece); err != nil {
					return
				}
				sendUrgent(t, near)
				near.Write([]byte("-after"))
			}
		}()
		got := make([]byte, len(piece))
		in := bufio.NewReader(&withoutUrgent{far})
		far.SetReadDeadline(time.Now().Add(conntest.Timeout))
		for i := range pieces {
			after := make([]byte, len("-after"))
			_, err := io.ReadFull(in, got)
			check.OK(t, err)
			_, err = io.ReadFull(in, after)
			check.OK(t, err)
			if !bytes.Equal(got, piece) || string(after) != "-after" {
				t.Fatalf("%s: other bytes in piece %d, and %q behind it", network, i, after)
			}
			if n := len(takenAndReleased()); i == 0 && n != most-1 {
				t.Errorf("%s: %d pipes are free of %d, so this tunnel has none", network, n, most)
			}
		}
		sendUrgent(t, near)
		conntest.Send(t, near, "last")
		endStream(t, near)
		rest, err := io.ReadAll(in)
		check.OK(t, err)
		if string(rest) != "last" {
			t.Errorf("%s: got %q, want last", network, rest)
		}
		near.Close()
		far.Close()
		await.Value(t, closed)
	}
}

// A direction that was busy with small messages gets a pipe when it has much to move.
func TestTunnelPipeAfterMessages(t *testing.T) {
	most := len(takenAndReleased())
	if most == 0 {
		t.Skip("the system has no pipes")
	}
	defer func(b, p time.Duration) { bufferPause, pipePause = b, p }(bufferPause, pipePause)
	bufferPause, pipePause = time.Hour, time.Hour
	testclock.Install(t) // stands still
	g, closed := newTunnels(t, &Tunnels{})
	a, near := conntest.Pair(t, "tcp")
	b, far := conntest.Pair(t, "tcp")
	check.OK(t, g.Join(a, b))
	for range 10 {
		conntest.Send(t, near, "small")
		conntest.Expect(t, far, "small")
	}
	if n := len(takenAndReleased()); n != most {
		t.Errorf("%d pipes are free of %d, so small messages have one", n, most)
	}
	much, got := pattern(16<<20), make([]byte, 16<<20)
	go near.Write(much)
	far.SetReadDeadline(time.Now().Add(conntest.Timeout))
	if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, much) {
		t.Errorf("%v, or other bytes", err)
	}
	if n := len(takenAndReleased()); n != most-1 {
		t.Errorf("%d pipes are free of %d, so this tunnel has none", n, most)
	}
	near.Close()
	far.Close()
	check.OK(t, await.Value(t, closed))
}

func sendUrgent(t testing.TB, conn net.Conn) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err == nil {
		raw.Control(func(fd uintptr) { err = sockettest.SendUrgent(fd, '!') })
	}
	if err != nil {
		t.Error(err)
	}
}

// withoutUrgent leaves out the urgent bytes that are in the stream, as one is when another follows
// before it is reached.
type withoutUrgent struct{ net.Conn }

func (c *withoutUrgent) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if left := bytes.ReplaceAll(b[:n], []byte{'!'}, nil); len(left) > 0 || err != nil {
			return copy(b, left), err
		}
	}
}

// takenAndReleased returns the pipes that can be taken at a time.
func takenAndReleased() []*nowait.Pipe {
	all := takePipes()
	releasePipes(all)
	return all
}

// A tunnel that ends gives its pipe back.
func TestTunnelPipeAbort(t *testing.T) {
	most := len(takenAndReleased())
	g, closed := newTunnels(t, &Tunnels{})
	tunnel, _, _, _, _ := blocked(t, g)
	tunnel.Abort(io.ErrNoProgress)
	check.Is(t, await.Value(t, closed), io.ErrNoProgress)
	if n := len(takenAndReleased()); n != most {
		t.Errorf("%d pipes are left of %d", n, most)
	}
}

// An end that comes before a reset is an end, also if the tunnel sees it after the reset.
func TestTunnelEndBeforeReset(t *testing.T) {
	for _, late := range []bool{false, true} {
		g, closed := newTunnels(t, &Tunnels{})
		a, near := conntest.Pair(t, "tcp")
		b, far := conntest.Pair(t, "tcp")
		conntest.Send(t, far, "answer")
		check.OK(t, far.(*net.TCPConn).CloseWrite())
		if late {
			resetPeer(far)
		}
		check.OK(t, g.Join(a, b))
		conntest.Expect(t, near, "answer")
		conntest.ExpectRest(t, near, "")
		resetPeer(far)
		check.OK(t, near.Close())
		check.Is(t, await.Value(t, closed), nil)
	}
}
