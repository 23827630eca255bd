package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/errno"
)

// answer is what both servers send to a request.
const answer = "HTTP/1.1 200 OK\r\n"

// answering is a handler that answers a request as far as the good clients here read.
func answering(c conn, buf []byte) error {
	n, err := c.Read(buf)
	if err == nil && strings.HasSuffix(string(buf[:n]), "\r\n\r\n") {
		_, err = c.Write([]byte(answer + "Content-Length: 0\r\n\r\n"))
	}
	return err
}

// stockTLS serves the same with net/http.
func stockTLS(t testing.TB, config *tls.Config) (addr string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{TLSConfig: config.Clone(), ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	done := make(chan error, 1)
	go func() { done <- s.ServeTLS(l, "", "") }()
	return l.Addr().String(), func() { s.Close(); <-done }
}

// A holder sends a ClientHello on each of its connections and nothing after it.
type holder struct {
	dialer net.Dialer
	addr   string
	hello  []byte
	conns  []net.Conn // oldest first
	of     sync.WaitGroup
}

// hold connects n times from an address.
func hold(t testing.TB, from, addr string, hello []byte, n int) *holder {
	t.Helper()
	h := &holder{addr: addr, hello: hello, conns: make([]net.Conn, n)}
	h.dialer = net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: soon}
	t.Cleanup(h.close)
	var failed error
	for i := range h.conns {
		c, err := h.connect()
		if err != nil {
			failed = err
			break
		}
		h.conns[i] = c
	}
	if errors.Is(failed, errno.NoAddr) {
		t.Skip("this system has one loopback address")
	}
	if failed != nil {
		t.Fatal(failed)
	}
	return h
}

func (h *holder) connect() (net.Conn, error) {
	c, err := h.dialer.Dial("tcp", h.addr)
	if err != nil {
		return nil, err
	}
	c.(*net.TCPConn).SetLinger(0) // so that its port is free again at once
	c.Write(h.hello)              // which a server may refuse
	return c, nil
}

// renew replaces the oldest connection so many times a second until the context ends.
func (h *holder) renew(ctx context.Context, t testing.TB, rate int) {
	h.of.Go(func() {
		clock := time.NewTicker(time.Second / time.Duration(rate))
		defer clock.Stop()
		for at := 0; ; at = (at + 1) % len(h.conns) {
			select {
			case <-ctx.Done():
				return
			case <-clock.C:
			}
			h.conns[at].Close()
			c, err := h.connect()
			if err != nil {
				t.Error(err)
				return
			}
			h.conns[at] = c
		}
	})
}

func (h *holder) close() {
	h.of.Wait()
	for _, c := range h.conns {
		if c != nil {
			c.Close()
		}
	}
}

// visit makes a full handshake, a request, and reads the beginning of its answer.
func visit(addr string, config *tls.Config) error {
	c, err := net.DialTimeout("tcp", addr, soon)
	if err != nil {
		return err
	}
	defer c.Close()
	c.(*net.TCPConn).SetLinger(0)
	c.SetDeadline(time.Now().Add(soon))
	tc := tls.Client(c, config)
	if _, err := io.WriteString(tc, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return err
	}
	got := make([]byte, len(answer))
	if _, err := io.ReadFull(tc, got); err != nil {
		return err
	}
	if string(got) != answer {
		return fmt.Errorf("answered %q", got)
	}
	return nil
}

// visits has several clients visit two servers in turn until the context ends, and returns how long the visits of each
// server took, in order of length.
func visits(ctx context.Context, t testing.TB, clients int, addrs [2]string, config *tls.Config) (took [2][]time.Duration) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for k := range clients {
		wg.Go(func() {
			for i := k % 2; ctx.Err() == nil; i = 1 - i {
				from := time.Now()
				err := visit(addrs[i], config)
				d := time.Since(from)
				if err != nil {
					t.Errorf("server %d: a handshake failed after %v: %v", i, d, err)
					return
				}
				mu.Lock()
				took[i] = append(took[i], d)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(took[0])
	slices.Sort(took[1])
	return took
}

// BenchmarkTLSHeld compares good clients' full handshakes, with a request each, with those of a server of net/http in the
// same process and at the same time. Beside each server there are connections that send a ClientHello and nothing more,
// of which 130 a second are replaced by new ones. The ratio is that of handshakes in a second. None may fail.
func BenchmarkTLSHeld(b *testing.B) {
	for _, n := range []int{0, 1100, 4500} {
		for _, from := range []string{"127.0.0.1", "127.0.0.2"} { // the good clients', and another
			b.Run(fmt.Sprintf("%d/%s", n, from), func(b *testing.B) {
				config, client := certified(b)
				for b.Loop() {
					s := &srv{Handler: &handler{t: b, data: answering}, TLSConfig: config}
					l, err := net.Listen("tcp", "127.0.0.1:0")
					if err != nil {
						b.Fatal(err)
					}
					done := make(chan error, 1)
					go func() { done <- s.ServeTLS(l, "", "") }()
					stock, stop := stockTLS(b, config)
					addrs := [2]string{l.Addr().String(), stock}

					ctx, cancel := context.WithCancel(b.Context())
					for _, addr := range addrs {
						if n > 0 {
							h := hold(b, from, addr, clientHello(b, client), n)
							h.renew(ctx, b, 130)
						}
					}
					good, stopGood := context.WithTimeout(ctx, 10*time.Second)
					took := visits(good, b, 4, addrs, client)
					stopGood()
					cancel()
					rate := [2]float64{}
					for i, name := range []string{"", "stock-"} {
						var sum time.Duration
						for _, d := range took[i] {
							sum += d
						}
						rate[i] = float64(len(took[i])) / sum.Seconds()
						b.ReportMetric(float64(len(took[i])), name+"handshakes")
						b.ReportMetric(float64(sum.Microseconds())/float64(len(took[i])), name+"µs")
						b.ReportMetric(float64(took[i][len(took[i])-1])/1e6, name+"worst-ms")
					}
					b.ReportMetric(rate[0]/rate[1], "ratio")
					b.ReportMetric(0, "ns/op")
					s.Close()
					<-done
					shutdown(b, s)
					stop()
				}
			})
		}
	}
}
