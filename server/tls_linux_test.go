//go:build !race

package server

import (
	"crypto/tls"
	"fmt"
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
	if s.TLSConfig == nil {
		s.TLSConfig = new(tls.Config)
	}
	s.TLSConfig.Certificates = []tls.Certificate{cert}
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
// the ClientHello. A client's certificate adds 3 KB, unless it is dropped: then 0.2 KB.
func TestIdleTLSMemory(t *testing.T) {
	long.Only(t, "it makes 5,000 TLS handshakes")
	backendtest.Each(t, func(t *testing.T, backend string) {
		for name, c := range map[string]struct {
			version    uint16
			most       float64
			cert, drop bool
		}{
			"TLS 1.2":                         {version: tls.VersionTLS12, most: 1_100},
			"TLS 1.3":                         {version: tls.VersionTLS13, most: 650},
			"a client's certificate":          {version: tls.VersionTLS13, most: 4_200, cert: true},
			"a client's certificate, dropped": {version: tls.VersionTLS13, most: 900, cert: true, drop: true},
		} {
			if backend == "poll" { // with fewer connections, so what is there once counts more
				c.most += 200
			}
			t.Run(name, func(t *testing.T) {
				s := &Server[*int]{Handler: counter{}, Backend: backend, IdleTimeout: time.Hour, Workers: 2}
				if c.drop {
					s.Handler = dropping{}
				}
				next := func(config *tls.Config) *tls.Config { return config }
				if c.cert {
					next = withClientCerts(t, s)
				}
				addr, config := servingTLS(t, s)
				config.MaxVersion = c.version
				testIdleTLSMemory(t, s, addr, func() *tls.Config { return next(config) }, c.most)
			})
		}
	})
}

// dropping is counter, without the certificates of clients.
type dropping struct{ counter }

func (dropping) Open(c *Conn[*int]) error { c.DropCertificates(); return nil }

// withClientCerts makes a server verify the certificates of clients, and returns a function that
// adds to the configuration of a client a certificate of its own, which an authority has issued.
func withClientCerts(t *testing.T, s *Server[*int]) func(*tls.Config) *tls.Config {
	authority, trust, err := selfcert.New(24*time.Hour, "authority")
	if err != nil {
		t.Fatal(err)
	}
	s.TLSConfig = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trust}
	n := 0
	return func(config *tls.Config) *tls.Config {
		n++
		cert, err := selfcert.Issue(authority, 24*time.Hour, fmt.Sprintf("device-%06d", n))
		if err != nil {
			t.Fatal(err)
		}
		own := config.Clone()
		own.Certificates = []tls.Certificate{cert}
		return own
	}
}

func testIdleTLSMemory(t *testing.T, s *Server[*int], addr string, next func() *tls.Config, most float64) {
	to := netip.MustParseAddrPort(addr)
	n := 5000
	if s.Backend == "poll" || qemu.TakesLong.Here() {
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
		c := tls.Client(bareConn{fd: fd}, next())
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
