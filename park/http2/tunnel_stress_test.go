package http2

//lint:file-ignore SA1019 the client is deprecated, and programs use it

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/tunnel"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/sockettest"
)

// Go's client opens tunnels on a few connections. Both ends send and read at random paces, end their
// streams, and reset. A side that gets the end of the stream has got every byte before it, and
// nothing is left behind. PARK_STRESS is how long it goes on.
func TestTunnelStress(t *testing.T) {
	d := 400 * time.Millisecond
	if v := os.Getenv("PARK_STRESS"); v != "" {
		var err error
		d, err = time.ParseDuration(v)
		must(t, err)
	}
	both(t, func(t *testing.T, secure bool) {
		x := serveTunnels(t, new(tunnel.Tunnels), &http.Server{
			HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}}, secure)
		var hosts, clients sync.WaitGroup
		hosts.Go(func() {
			for {
				conn, err := x.host.Accept()
				if err != nil {
					return
				}
				hosts.Go(func() { stressHost(t, conn.(*net.TCPConn)) })
			}
		})
		until := time.Now().Add(d)
		for range 3 {
			_, trust := certificate()
			tr := &http2.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}, AllowHTTP: !secure}
			if !secure {
				tr.DialTLSContext = func(_ context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
					return net.Dial(network, address)
				}
			}
			t.Cleanup(tr.CloseIdleConnections)
			for range 6 {
				clients.Go(func() {
					for time.Now().Before(until) && !t.Failed() {
						stressClient(t, x, tr)
					}
				})
			}
		}
		clients.Wait()
		await.Until(t, "the tunnels have ended", func() bool { return x.Stats().Conns == 0 })
		x.host.Close()
		hosts.Wait()
		t.Logf("%d tunnels", x.Stats().Accepted)
	})
}

// stressClient opens a tunnel. Its first eight bytes say how many bytes the host is to send, and
// how many follow.
func stressClient(t *testing.T, x *forward, tr *http2.Transport) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	abrupt := rand.IntN(3) == 0
	back, forth := rand.IntN(300<<10), rand.IntN(300<<10)
	flags := uint32(0)
	if abrupt && rand.IntN(2) == 0 {
		flags = 1 << 31 // the host resets
	}
	body, send := io.Pipe()
	u, err := url.Parse(x.url)
	must(t, err)
	r := (&http.Request{Method: "CONNECT", URL: u, Host: x.host.Addr().String(), Header: http.Header{},
		Body: body, ContentLength: -1}).WithContext(ctx)
	resp, err := tr.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%v, %v", resp, err)
		return
	}
	defer resp.Body.Close()
	var all sync.WaitGroup
	all.Go(func() {
		head := binary.BigEndian.AppendUint32(nil, uint32(back)|flags)
		if _, err := send.Write(binary.BigEndian.AppendUint32(head, uint32(forth))); err != nil {
			return
		}
		stressWrite(send, forth)
		send.Close()
	})
	if abrupt && flags == 0 {
		all.Go(func() {
			await.UpTo(20 * time.Millisecond)
			cancel()
		})
	}
	n, err := stressRead(resp.Body)
	switch {
	case err == nil && n != back:
		t.Errorf("a client got the end after %d of %d bytes", n, back)
	case err != nil && !abrupt, n > back:
		t.Errorf("a client got %d of %d bytes: %v", n, back, err)
	}
	if err != nil {
		send.CloseWithError(err)
	}
	all.Wait()
}

// stressHost is the other end.
func stressHost(t *testing.T, conn *net.TCPConn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(timeout))
	var head [8]byte
	if n, err := io.ReadFull(conn, head[:]); err != nil {
		if err == io.EOF {
			t.Errorf("a host got the end after %d bytes", n)
		}
		return // the client has reset
	}
	back, forth := binary.BigEndian.Uint32(head[:]), int(binary.BigEndian.Uint32(head[4:]))
	var all sync.WaitGroup
	var failed error
	all.Go(func() {
		if failed = stressWrite(conn, int(back&^(1<<31))); failed == nil {
			conn.CloseWrite()
		}
	})
	if back>>31 == 1 {
		await.UpTo(10 * time.Millisecond)
		reset(conn)
		all.Wait()
		return
	}
	n, err := stressRead(conn)
	all.Wait()
	// The kernel reports a reset to one operation. If that is the write, Read sees the end.
	if err == nil && n != forth && failed == nil || n > forth {
		t.Errorf("a host got the end after %d of %d bytes", n, forth)
	}
}

// stressWrite writes n bytes of a sequence in parts.
func stressWrite(w io.Writer, n int) error {
	for at := 0; at < n; {
		part := sockettest.Sequence(at, min(1+rand.IntN(40<<10), n-at))
		if _, err := w.Write(part); err != nil {
			return err
		}
		if at += len(part); rand.IntN(8) == 0 {
			await.UpTo(2 * time.Millisecond)
		}
	}
	return nil
}

// stressRead reads to the end, at times slowly, and checks the bytes.
func stressRead(r io.Reader) (n int, err error) {
	buf := make([]byte, 1+rand.IntN(20<<10))
	for {
		m, err := r.Read(buf)
		if !bytes.Equal(buf[:m], sockettest.Sequence(n, m)) {
			return 1 << 40, fmt.Errorf("other bytes after %d", n)
		}
		if n += m; err == io.EOF {
			return n, nil
		} else if err != nil {
			return n, err
		}
		if rand.IntN(10) == 0 {
			await.UpTo(time.Millisecond)
		}
	}
}
