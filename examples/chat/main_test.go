package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
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

// each runs a test on every backend, with a server that must end and leave no goroutine or descriptor.
func each(t *testing.T, test func(t *testing.T, server string)) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		handles.NoneLeft(t, "socket:") // after the clients have closed
		listener, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- serve(ctx, listener, backend) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("serve: %v", err)
			}
			listener.Close()
		})
		test(t, listener.LocalAddr().String())
	})
}

// join connects clients, and returns when each receives the lines of the others.
func join(t *testing.T, server string, n int) []*net.TCPConn {
	t.Helper()
	var clients []*net.TCPConn
	for range n {
		c, err := net.Dial("tcp", server)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(2 * time.Minute))
		c.(*net.TCPConn).SetReadBuffer(64 << 10)
		clients = append(clients, c.(*net.TCPConn))
		expect(t, c, []byte("welcome\n"))
	}
	return clients
}

func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, c net.Conn, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("received %d of %d bytes, error %v, the right ones: %v", n, len(want), err, bytes.Equal(got[:n], want[:n]))
	}
}

// All clients send at the same time, and each receives the lines of the others complete and in order. Some read at the
// same time, others only afterwards, so that their queues are used.
func TestBroadcast(t *testing.T) {
	const lines = 1000 // of all clients: fewer bytes than fit into a queue, so no client is too slow
	pad := strings.Repeat(".", 40)
	each(t, func(t *testing.T, server string) {
		clients := join(t, server, 5)
		var writing, reading sync.WaitGroup
		for i, c := range clients {
			writing.Go(func() {
				var text []byte
				for line := range lines {
					text = fmt.Appendf(text, "%d: line %d %s\n", i, line, pad)
				}
				for len(text) > 0 { // write the lines in pieces
					n := min(len(text), 1+len(text)%1500)
					if _, err := c.Write(text[:n]); err != nil {
						t.Error(err)
						return
					}
					text = text[n:]
				}
			})
		}
		for i, c := range clients {
			reading.Go(func() {
				if i%2 == 1 {
					writing.Wait()
				}
				next := make([]int, len(clients))
				for r := bufio.NewScanner(c); ; {
					if !r.Scan() {
						t.Errorf("%d: after %v: %v", i, next, r.Err())
						return
					}
					var from, line int
					fmt.Sscanf(r.Text(), "%d: line %d", &from, &line)
					if from == i || r.Text() != fmt.Sprintf("%d: line %d %s", from, next[from], pad) {
						t.Errorf("%d: after %v: %q", i, next, r.Text())
						return
					}
					next[from]++
					left := 0
					for j := range next {
						if j != i {
							left += lines - next[j]
						}
					}
					if left == 0 {
						return
					}
				}
			})
		}
		writing.Wait()
		reading.Wait()
	})
}

// A client that never reads is dropped. A client that reads late receives everything, as long as its queue has room.
func TestSlowReader(t *testing.T) {
	const rounds = 8
	each(t, func(t *testing.T, server string) {
		clients := join(t, server, 4)
		sender, fast, late, never := clients[0], clients[1], clients[2], clients[3]
		// More than fits into the buffers of the system, so that the queue and EventOut are used.
		block := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 2000)
		for range rounds {
			write(t, sender, string(block))
			expect(t, fast, block)
			expect(t, late, block)
		}
		n, err := io.Copy(io.Discard, never)
		if !errors.Is(err, errno.Reset) && !wine.ForgetsReset.Here() || n >= int64(rounds*len(block)) {
			t.Errorf("it received %d bytes, then %v; want less and a reset", n, err)
		}
	})
}

// Clients that leave, in any way, do not disturb the others.
func TestLeave(t *testing.T) {
	each(t, func(t *testing.T, server string) {
		clients := join(t, server, 6)
		a, b := clients[0], clients[1]
		clients[2].Close()
		clients[3].SetLinger(0)
		clients[3].Close()
		clients[4].CloseWrite()
		// A line without an end is refused.
		clients[5].Write(make([]byte, 2*maxBytes))
		for _, c := range clients[4:] {
			if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("not dropped: %v", err)
			}
		}
		write(t, a, "from a\n")
		expect(t, b, []byte("from a\n"))
		write(t, b, "from b\n")
		expect(t, a, []byte("from b\n"))
	})
}

func TestNoSuchBackend(t *testing.T) {
	if err := serve(t.Context(), nil, "abacus"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}
