package load_test

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/load"
	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/backendtest"
)

func certified(t *testing.T, version uint16) (server, client *tls.Config) {
	t.Helper()
	cert, trust, err := selfcert.New(24*time.Hour, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: version}, &tls.Config{RootCAs: trust}
}

func versions(t *testing.T, test func(t *testing.T, backend string, version uint16)) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, v := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(tls.VersionName(v), func(t *testing.T) { test(t, backend, v) })
		}
	})
}

// With TLS every request is answered and counted, and each connection ends with a close_notify.
func TestTLSAnswers(t *testing.T) {
	versions(t, func(t *testing.T, backend string, version uint16) {
		for name, c := range map[string]struct {
			set   func(*load.Config)
			bytes int64
		}{
			"many":       {func(c *load.Config) { c.Connections = 150 }, 64 * 2000},
			"depth":      {func(c *load.Config) { c.Connections, c.Depth = 10, 16 }, 64 * 5000},
			"large":      {func(c *load.Config) { c.Connections, c.Size, c.Depth = 3, 1<<20, 4 }, 30 << 20},
			"with think": {func(c *load.Config) { c.Connections, c.Depth, c.Think = 20, 3, time.Millisecond }, 64 * 600},
		} {
			t.Run(name, func(t *testing.T) {
				server, client := certified(t, version)
				ctx, m := newMeter(t, c.bytes)
				ends := make(chan error, 150)
				cfg := config(backend, serve(t, func(c *net.TCPConn, _ int) {
					ends <- echoTLS(tls.Server(c, server), m.add)
				}))
				cfg.TLS = client
				c.set(&cfg)
				res, err := load.Run(ctx, cfg, nil)
				healthy(t, cfg, res, err)
				if n := m.bytes.Load(); res.Bytes != n {
					t.Errorf("counted %d bytes, the server %d", res.Bytes, n)
				}
				for range cfg.Connections {
					if err := <-ends; err != io.EOF {
						t.Errorf("a connection ended with %v", err)
					}
				}
			})
		}
	})
}

func echoTLS(c *tls.Conn, told func(n int)) error {
	b := make([]byte, 64<<10)
	for {
		n, err := c.Read(b)
		if err != nil {
			return err
		}
		told(n)
		if _, err := c.Write(b[:n]); err != nil {
			return err
		}
	}
}

// Handshakes that fail or never end are errors, as connects are.
func TestTLSHandshakeFails(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		server, client := certified(t, 0)
		for name, c := range map[string]struct {
			set    func(*load.Config)
			handle func(c *net.TCPConn)
			says   string
		}{
			"not trusted":    {func(c *load.Config) { c.TLS = &tls.Config{} }, nil, "certificate"},
			"no TLS":         {func(*load.Config) {}, func(c *net.TCPConn) { c.Write([]byte("hello, world")) }, "TLS"},
			"closed":         {func(*load.Config) {}, func(*net.TCPConn) {}, "TLS handshake"},
			"without an end": {func(c *load.Config) { c.Timeout = 100 * time.Millisecond }, func(c *net.TCPConn) { io.Copy(io.Discard, c) }, "deadline"},
		} {
			t.Run(name, func(t *testing.T) {
				cfg := config(backend, serve(t, func(tc *net.TCPConn, _ int) {
					if c.handle != nil {
						c.handle(tc)
						return
					}
					echoTLS(tls.Server(tc, server), func(int) {})
				}))
				cfg.TLS, cfg.Connections = client.Clone(), 10
				c.set(&cfg)
				res, err := load.Run(t.Context(), cfg, nil)
				for err != nil && strings.Contains(err.Error(), "connect: not done") { // so no handshake has begun
					cfg.Timeout *= 2
					res, err = load.Run(t.Context(), cfg, nil)
				}
				if err == nil || res.Errors != 10 || res.Requests != 0 || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%+v, %v", res, err)
				}
			})
		}
	})
}
