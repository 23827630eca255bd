package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/errno"
	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/internal/test/wine"
	"github.com/socknotify/socknotify/sock"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// A bench is a proxy, and the listener that it connects to.
type bench struct {
	*testing.T
	proxy  string
	target net.Listener
}

// each runs a test on every backend, with a proxy that must end and leave no goroutine or descriptor.
func each(t *testing.T, test func(b *bench)) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		handles.NoneLeft(t, "socket:")
		target, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { target.Close() })
		addr := target.Addr().(*net.TCPAddr).AddrPort()
		test(&bench{t, start(t, addr, backend), target})
	})
}

// start runs a proxy until the end of the test and returns its address.
func start(t *testing.T, target netip.AddrPort, backend string) string {
	listener, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- serve(ctx, listener, target, backend) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("serve: %v", err)
		}
		listener.Close()
	})
	return listener.LocalAddr().String()
}

// pair connects through the proxy.
func (b *bench) pair() (client, target *net.TCPConn) {
	b.Helper()
	conns := [2]*net.TCPConn{}
	for i, connect := range []func() (net.Conn, error){
		func() (net.Conn, error) { return net.Dial("tcp", b.proxy) },
		b.target.Accept,
	} {
		c, err := connect()
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(2 * time.Minute))
		conns[i] = c.(*net.TCPConn)
	}
	return conns[0], conns[1]
}

func (b *bench) write(c net.Conn, data []byte) {
	b.Helper()
	if _, err := c.Write(data); err != nil {
		b.Error(err)
	}
}

func (b *bench) expect(c net.Conn, want []byte) {
	b.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		b.Errorf("received %d of %d bytes, error %v, the right ones: %v", n, len(want), err, bytes.Equal(got[:n], want[:n]))
	}
}

func (b *bench) expectEnd(c net.Conn) {
	b.Helper()
	if n, err := c.Read(make([]byte, 1)); err != io.EOF {
		b.Errorf("received %d bytes, error %v; want the end", n, err)
	}
}

func (b *bench) expectReset(c net.Conn) {
	b.Helper()
	n, err := c.Read(make([]byte, 1))
	if !errors.Is(err, errno.Reset) && !(err == io.EOF && wine.ForgetsReset.Here()) {
		b.Errorf("received %d bytes, error %v; want a reset", n, err)
	}
}

// random returns random bytes, so that lost or reordered bytes are noticed.
func random(n int) []byte {
	data := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(data)
	return data
}

// Both sides send at the same time, more than fits into any buffer. The target does not read before the client has
// received everything: the blocked direction must not delay the other.
func TestBothDirections(t *testing.T) {
	up := random(16 << 20)
	down := up[1 : 8<<20]
	each(t, func(b *bench) {
		client, target := b.pair()
		target.SetReadBuffer(64 << 10)
		var working sync.WaitGroup
		working.Go(func() { b.write(client, up); client.CloseWrite() })
		working.Go(func() { b.write(target, down); target.CloseWrite() })
		working.Go(func() {
			b.expect(client, down)
			b.expectEnd(client)
			b.expect(target, up)
			b.expectEnd(target)
		})
		working.Wait()
	})
}

// Many pairs at once.
func TestManyPairs(t *testing.T) {
	data := random(100 << 10)
	each(t, func(b *bench) {
		var working sync.WaitGroup
		for i := range 30 {
			client, target := b.pair()
			up, down := data[i:], data[2*i:]
			working.Go(func() { b.write(client, up); client.CloseWrite() })
			working.Go(func() { b.write(target, down); target.CloseWrite() })
			working.Go(func() { b.expect(client, down); b.expectEnd(client) })
			working.Go(func() { b.expect(target, up); b.expectEnd(target) })
		}
		working.Wait()
	})
}

// The end of one direction arrives, and the other goes on.
func TestHalfClose(t *testing.T) {
	data := random(1 << 20)
	test := func(b *bench, first, second *net.TCPConn) {
		b.write(first, []byte("the last of this direction"))
		first.CloseWrite()
		b.expect(second, []byte("the last of this direction"))
		b.expectEnd(second)
		var writing sync.WaitGroup
		writing.Go(func() { b.write(second, data); second.Close() })
		b.expect(first, data)
		b.expectEnd(first)
		writing.Wait()
	}
	t.Run("client", func(t *testing.T) {
		each(t, func(b *bench) {
			client, target := b.pair()
			test(b, client, target)
		})
	})
	t.Run("target", func(t *testing.T) {
		each(t, func(b *bench) {
			client, target := b.pair()
			test(b, target, client)
		})
	})
}

// A reset of one side resets the other, whether it is idle or sending.
func TestReset(t *testing.T) {
	if wine.ForgetsReset.Here() {
		t.Skip(wine.ForgetsReset)
	}
	each(t, func(b *bench) {
		for _, busy := range []bool{false, true} {
			for side := range 2 {
				client, target := b.pair()
				dies, lives := client, target
				if side == 1 {
					dies, lives = target, client
				}
				b.write(dies, []byte("x")) // now both sides are connected
				b.expect(lives, []byte("x"))
				var writing sync.WaitGroup
				if busy {
					writing.Go(func() {
						n, err := lives.Write(make([]byte, 64<<20))
						if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
							b.Errorf("wrote %d bytes, error %v", n, err)
						}
					})
					b.expect(dies, make([]byte, 1<<20))
				}
				dies.SetLinger(0)
				dies.Close()
				writing.Wait()
				if !busy { // otherwise the write may return the error
					b.expectReset(lives)
				}
			}
		}
	})
}

// A client of a target that refuses is reset, and the proxy goes on.
func TestRefused(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		handles.NoneLeft(t, "socket:")
		bound, err := sock.New(sock.TCP4) // bound, but not listening
		if err != nil {
			t.Fatal(err)
		}
		defer bound.Close()
		if err := bound.Bind(sock.Loopback); err != nil {
			t.Fatal(err)
		}
		b := &bench{t, start(t, bound.LocalAddr(), backend), nil}
		for range 10 {
			c, err := net.Dial("tcp", b.proxy)
			if errors.Is(err, errno.Reset) {
				continue // reset during the connect
			}
			if err != nil {
				t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(2 * time.Minute))
			b.expectReset(c)
			c.Close()
		}
	})
}

// Pairs that are open when the proxy ends are closed.
func TestCancelled(t *testing.T) {
	each(t, func(b *bench) {
		for range 3 {
			client, target := b.pair()
			b.write(client, []byte("hello"))
			b.expect(target, []byte("hello"))
		}
	})
}

func TestNoSuchBackend(t *testing.T) {
	if err := serve(t.Context(), nil, netip.AddrPort{}, "abacus"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}
