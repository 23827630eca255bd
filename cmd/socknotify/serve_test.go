package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// serve answers the requests of load, and both count the same.
func TestServeAndLoad(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, b string) {
		ctx, interrupt := context.WithCancel(t.Context())
		r, w := io.Pipe()
		var out bytes.Buffer
		done := make(chan int, 1)
		listeners := "2"
		if runtime.GOOS == "windows" {
			listeners = "1" // Windows cannot share an address
		}
		go func() {
			done <- run(ctx, []string{"serve", "echo", "--addr", "127.0.0.1:0", "--workers", "3", "--listeners", listeners, "--backend", b}, &out, w)
			w.Close()
		}()
		var banner [128]byte
		n, err := r.Read(banner[:])
		if err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, r)
		addr := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(string(banner[:n]))

		status, text, errs := sh(t, "load", "--json", "--addr", addr, "--connections", "20", "--size", "1000", "--duration", "200ms")
		if status != 0 || errs != "" {
			t.Fatalf("load: status %d: %s", status, errs)
		}
		var got struct {
			Requests int64   `json:"requests"`
			Errors   int64   `json:"errors"`
			Bytes    int64   `json:"bytes"`
			Seconds  float64 `json:"seconds"`
			P50      float64 `json:"p50_us"`
			P99      float64 `json:"p99_us"`
			Max      float64 `json:"max_us"`
		}
		decode(t, text, &got)
		if got.Requests == 0 || got.Errors != 0 || got.Bytes != 1000*got.Requests || got.P50 <= 0 || got.P50 > got.P99 || got.P99 > got.Max {
			t.Errorf("%+v", got)
		}
		interrupt()
		if status := <-done; status != 0 {
			t.Errorf("serve: status %d", status)
		}
		if want := "connections 20 "; !strings.HasPrefix(out.String(), want) || !strings.Contains(out.String(), fmt.Sprintf("bytes %d ", got.Bytes)) {
			t.Errorf("serve printed %q; load got %d bytes", out.String(), got.Bytes)
		}
	})
}

func TestServeUsage(t *testing.T) {
	backendtest.Need(t)
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"serve", "echo", "--workers", "0"}, 2, "--workers 0"},
		{[]string{"serve", "echo", "--listeners", "-1"}, 2, "--listeners -1"},
		{[]string{"serve", "echo", "--addr", "nonsense"}, 2, "--addr nonsense"},
		{[]string{"serve", "echo", "--backend", "nonsense"}, 2, "nonsense"},
		{[]string{"serve", "discard", "--shards", "-1"}, 2, "--shards -1"},
		{[]string{"serve", "chargen", "--max-connections", "-1"}, 2, "--max-connections -1"},
		{[]string{"serve", "chargen", "--idle", "-1s"}, 2, "--idle -1s"},
		{[]string{"serve", "echo", "--cert", "x"}, 2, "--key"},
		{[]string{"serve", "echo", "--cert", "no-such-file", "--key", "y", "--addr", "127.0.0.1:0"}, 1, "no-such-file"},
		{[]string{"serve", "echo", "--tls", "--cert", "no-such-file", "--key", "y", "--addr", "127.0.0.1:0"}, 1, "no-such-file"},
		{[]string{"serve", "nothing"}, 2, "nothing"},
		{[]string{"serve", "echo", "--addr", "192.0.2.1:9"}, 1, "bind"},
	} {
		status, _, errs := sh(t, c.args...)
		if status != c.status || !strings.Contains(errs, c.want) {
			t.Errorf("%v: status %d, %s", c.args, status, errs)
		}
	}
}

// served starts a service. It returns a connection to it, and a function that ends it and returns its output.
func served(t *testing.T, args ...string) (c *net.TCPConn, stop func() string) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	r, w := io.Pipe()
	var out bytes.Buffer
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, append([]string{"serve", "--addr", "127.0.0.1:0"}, args...), &out, w)
		w.Close()
	}()
	stop = sync.OnceValue(func() string {
		interrupt()
		if status := <-done; status != 0 {
			t.Errorf("status %d", status)
		}
		return out.String()
	})
	t.Cleanup(func() { stop() })
	var banner [128]byte
	n, err := r.Read(banner[:])
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, r)
	conn, err := net.Dial("tcp", regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(string(banner[:n])))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	return conn.(*net.TCPConn), stop
}

// serve --tls generates a certificate, or reads one.
func TestServeTLS(t *testing.T) {
	backendtest.Need(t)
	certFile, keyFile, trust := writeCertificate(t, t.TempDir(), "example.test")
	backendtest.Each(t, func(t *testing.T, b string) {
		for _, f := range []struct {
			flags  []string
			config *tls.Config
		}{
			{nil, &tls.Config{InsecureSkipVerify: true}}, // generated, and not trusted by any client
			{[]string{"--cert", certFile, "--key", keyFile}, &tls.Config{RootCAs: trust, ServerName: "example.test"}},
		} {
			raw, stop := served(t, append([]string{"echo", "--tls", "--backend", b}, f.flags...)...)
			c := tls.Client(raw, f.config)
			go func() {
				c.Write(make([]byte, 100_000))
				c.CloseWrite()
			}()
			if got, err := io.ReadAll(c); len(got) != 100_000 || err != nil {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if text := stop(); !strings.Contains(text, "connections 1 ") || !strings.Contains(text, "bytes 100000 ") {
				t.Errorf("it printed %q", text)
			}
		}
	})
}

func TestServeDiscard(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, b string) {
		c, stop := served(t, "discard", "--backend", b)
		if _, err := c.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		c.CloseWrite()
		if rest, err := io.ReadAll(c); len(rest) != 0 || err != nil {
			t.Errorf("%d bytes, %v", len(rest), err)
		}
		if text := stop(); !strings.Contains(text, "connections 1 ") || !strings.Contains(text, "bytes 1048576 ") {
			t.Errorf("it printed %q", text)
		}
	})
}

func TestServeChargen(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, b string) {
		c, stop := served(t, "chargen", "--backend", b, "--workers", "1")
		lines := bufio.NewScanner(c)
		const want = 100_000
		for i := range want {
			if !lines.Scan() {
				t.Fatal(lines.Err())
			}
			line := lines.Text()
			if len(line) != 72 || line[0] != byte(' '+i%95) || line[71] != byte(' '+(i+71)%95) {
				t.Fatalf("line %d is %q", i, line)
			}
		}
		c.Close()
		if text := stop(); !strings.Contains(text, "connections 1 ") {
			t.Errorf("it printed %q", text)
		}
	})
}
