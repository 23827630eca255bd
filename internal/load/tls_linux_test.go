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
					echo(tls.Server(tc, server), func(int) {})
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
