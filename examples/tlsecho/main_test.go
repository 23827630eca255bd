package main

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestTLSEcho(t *testing.T) {
	cert, trust, err := selfcert.New(24*time.Hour, "localhost")
	if err != nil {
		t.Fatal(err)
	}
	backendtest.Each(t, func(t *testing.T, backend string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- serve(ctx, l, cert, backend) }()
		text := strings.Repeat("many words, ", 10_000)
		for protocol, want := range map[string]string{"": text, "echo": text, "shout": strings.ToUpper(text)} {
			raw, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			raw.SetDeadline(time.Now().Add(2 * time.Minute))
			config := &tls.Config{RootCAs: trust, ServerName: "localhost"}
			if protocol != "" {
				config.NextProtos = []string{protocol}
			}
			c := tls.Client(raw, config)
			go func() {
				io.WriteString(c, text)
				c.CloseWrite()
			}()
			if got, err := io.ReadAll(c); err != nil || string(got) != want {
				t.Errorf("%q: %d bytes, %v", protocol, len(got), err)
			}
			c.Close()
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
