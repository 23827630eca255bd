//go:build !race

package server

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/qemu"
	"github.com/socknotify/socknotify/internal/tlsrecord"
	"github.com/socknotify/socknotify/sock"
)

// servingTLS is serving with TLS, and returns a client's configuration.
func servingTLS(tb testing.TB, s *Server[*int]) (addr string, client *tls.Config) {
	tb.Helper()
	cert, trust, err := selfcert.New(24*time.Hour, "localhost")
	if err != nil {
		tb.Fatal(err)
	}
	s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	addr = l.LocalAddr().String()
	done := make(chan error, 1)
	go func() { done <- s.ServeTLSSocket(l, "", "") }()
	tb.Cleanup(func() {
		s.Close()
		<-done
		<-s.server.stopped
	})
	return addr, &tls.Config{RootCAs: trust, ServerName: "localhost"}
}

// An idle connection has no goroutine and no buffers. With TLS 1.2 its state keeps the ClientHello.
func TestIdleTLSMemory(t *testing.T) {
	long.Only(t, "it makes 5,000 TLS handshakes")
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(tls.VersionName(version), func(t *testing.T) {
				s := &Server[*int]{Handler: counter{}, Backend: backend, IdleTimeout: time.Hour}
				addr, config := servingTLS(t, s)
				config.MaxVersion = version
				n := 5000
				if backend == "poll" || qemu.TakesLong.Here() {
					n = 500 // as each handshake costs poll a look at all
				}
				raw := make([]*net.TCPConn, 0, n)
				defer func() {
					for _, c := range raw {
						c.Close()
					}
				}()
				connect := func() { // the client's side of TLS is thrown away: it would be measured
					c, err := net.Dial("tcp", addr)
					if err != nil {
						t.Fatal(err)
					}
					raw = append(raw, c.(*net.TCPConn))
					tc := tls.Client(c, config)
					buf := make([]byte, 64)
					if _, err := tc.Write(buf); err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadFull(tc, buf); err != nil {
						t.Fatal(err)
					}
				}
				connect()
				bare := socketCost(t)
				eventually(t, func() bool { return tlsrecord.Live() == 0 })
				before, rss, goroutines := live(), resident(t), runtime.NumGoroutine()
				for range n {
					connect()
				}
				eventually(t, func() bool {
					return s.Stats().Conns == n+1 && runtime.NumGoroutine() <= goroutines+2 &&
						tlsrecord.Live() == 0
				})
				each := float64(live()-before)/float64(n) - bare
				t.Logf("%.0f live bytes per idle connection; both sides' resident memory grew by %.1f KiB each",
					each, float64(resident(t)-rss)/float64(n)/1024)
				if each > 2_000 {
					t.Errorf("%.0f live bytes", each)
				}
			})
		}
	})
}

// socketCost returns the memory of a client's *net.TCPConn, which is subtracted.
func socketCost(t *testing.T) float64 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const n = 500
	conns := make([]net.Conn, 0, 2*n)
	before := live()
	for range n {
		a, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		b, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, a, b)
	}
	cost := float64(live()-before) / float64(len(conns))
	for _, c := range conns {
		c.Close()
	}
	return cost
}

// resident returns the resident memory of the process.
func resident(t *testing.T) int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// A request through TLS makes no more allocations than on a server with a goroutine, of crypto/tls
// and package net alone.
func TestTLSRequestCosts(t *testing.T) {
	allocations := func(t *testing.T, addr string, config *tls.Config) float64 {
		t.Helper()
		c, err := tls.Dial("tcp", addr, config)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		request := requests(t, c)
		for range 100 {
			request()
		}
		return testing.AllocsPerRun(1000, request)
	}
	backendtest.Each(t, func(t *testing.T, backend string) {
		s := &Server[*int]{Handler: counter{}, Backend: backend, Workers: 1, IdleTimeout: time.Minute}
		addr, config := servingTLS(t, s)
		l, err := tls.Listen("tcp", "127.0.0.1:0", s.TLSConfig)
		if err != nil {
			t.Fatal(err)
		}
		var plain sync.WaitGroup
		defer plain.Wait()
		defer l.Close()
		plain.Go(func() {
			if c, err := l.Accept(); err == nil {
				io.Copy(struct{ io.Writer }{c}, c)
				c.Close()
			}
		})
		got, most := allocations(t, addr, config), allocations(t, l.Addr().String(), config)
		t.Logf("%v allocations, and %v with a goroutine, of the client and of the server", got, most)
		if got > most {
			t.Errorf("%v allocations, and %v with a goroutine", got, most)
		}
	})
}
