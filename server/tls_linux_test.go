//go:build !race

package server

import (
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/qemu"
)

// servingTLS is serving with TLS, and returns a client's configuration.
func servingTLS(tb testing.TB, s *Server[*int]) (addr string, client *tls.Config) {
	tb.Helper()
	cert, trust, err := selfcert.New(24*time.Hour, "localhost")
	if err != nil {
		tb.Fatal(err)
	}
	s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
	l := listenTCP(tb)
	addr = l.LocalAddr().String()
	servingBy(tb, s, func() error { return s.ServeTLSSocket(l, "", "") })
	return addr, &tls.Config{RootCAs: trust, ServerName: "localhost"}
}

// A bareConn is a client's socket, without memory of its own.
type bareConn struct {
	net.Conn // its other methods are not called
	fd       int
}

func (b bareConn) Read(p []byte) (int, error) {
	n, err := retried(func() (int, error) { return unix.Read(b.fd, p) })
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (b bareConn) Write(p []byte) (int, error) {
	return retried(func() (int, error) { return unix.Write(b.fd, p) })
}

// retried calls a system call until it is not interrupted.
func retried(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// An idle connection costs at most 650 live bytes with TLS 1.3 on epoll, its socket and its
// registration included: some 620. It has no goroutine and no buffers. With TLS 1.2 its state keeps
// the ClientHello.
func TestIdleTLSMemory(t *testing.T) {
	long.Only(t, "it makes 5,000 TLS handshakes")
	backendtest.Each(t, func(t *testing.T, backend string) {
		for version, most := range map[uint16]float64{tls.VersionTLS12: 1_100, tls.VersionTLS13: 650} {
			if backend == "poll" { // with fewer connections, so what is there once counts more
				most += 200
			}
			t.Run(tls.VersionName(version), func(t *testing.T) {
				testIdleTLSMemory(t, backend, version, most)
			})
		}
	})
}

func testIdleTLSMemory(t *testing.T, backend string, version uint16, most float64) {
	s := &Server[*int]{Handler: counter{}, Backend: backend, IdleTimeout: time.Hour, Workers: 2}
	addr, config := servingTLS(t, s)
	config.MaxVersion = version
	to := netip.MustParseAddrPort(addr)
	n := 5000
	if backend == "poll" || qemu.TakesLong.Here() {
		n = 500 // as each handshake costs poll a look at all
	}
	clients := make([]int, n+1) // all of them first: a port's table is by number
	for i := range clients {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		clients[i] = fd
	}
	connect := func(fd int) { // the client's side of TLS is thrown away: it would be measured
		sockaddr := &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
		if err := unix.Connect(fd, sockaddr); err != nil {
			t.Fatal(err)
		}
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // as package net does
		c := tls.Client(bareConn{fd: fd}, config)
		buf := make([]byte, 64)
		if _, err := c.Write(buf); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			t.Fatal(err)
		}
	}
	connect(clients[n])
	eventually(t, func() bool { return tlsrecord.Live() == 0 })
	before, rss, goroutines := live(), resident(t), runtime.NumGoroutine()
	for _, fd := range clients[:n] {
		connect(fd)
	}
	eventually(t, func() bool {
		return s.Stats().Conns == n+1 && runtime.NumGoroutine() <= goroutines+2 &&
			tlsrecord.Live() == 0
	})
	each := float64(live()-before) / float64(n)
	t.Logf("%.0f live bytes per idle connection; both sides' resident memory grew by %.1f KiB each",
		each, float64(resident(t)-rss)/float64(n)/1024)
	if each > most {
		t.Errorf("%.0f live bytes, where %.0f may be", each, most)
	}
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
