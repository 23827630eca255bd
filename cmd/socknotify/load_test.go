package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/load"
	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/wine"
	"github.com/socknotify/socknotify/sock"
)

// shLoad runs load in this process.
func shLoad(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(ctx, append([]string{"load"}, args...), &out, &errs)
	return status, out.String(), errs.String()
}

// echoServer calls handle for each connection.
func echoServer(t *testing.T, handle func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				handle(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return l.Addr().String()
}

func echoBack(c net.Conn) { io.Copy(c, struct{ io.Reader }{c}) }

// loadObject is the documented output of load --json.
type loadObject struct {
	Requests *int64   `json:"requests"`
	Errors   *int64   `json:"errors"`
	Bytes    *int64   `json:"bytes"`
	Seconds  *float64 `json:"seconds"`
	P50      *float64 `json:"p50_us"`
	P99      *float64 `json:"p99_us"`
	Max      *float64 `json:"max_us"`
}

func decodeLoad(t *testing.T, text string) (o loadObject) {
	t.Helper()
	decode(t, text, &o)
	if o.Requests == nil || o.Errors == nil || o.Bytes == nil || o.Seconds == nil || o.P50 == nil || o.P99 == nil || o.Max == nil {
		t.Fatal(text)
	}
	return o
}

func TestLoadJSON(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, b string) {
		status, out, errs := shLoad(t.Context(), "--addr", echoServer(t, echoBack), "--backend", b, "--json",
			"--connections", "20", "--depth", "3", "--size", "100", "--duration", "100ms", "--workers", "3")
		if status != 0 || errs != "" {
			t.Fatalf("status %d: %s", status, errs)
		}
		o := decodeLoad(t, out)
		if *o.Requests < 20*3 || *o.Errors != 0 || *o.Bytes != *o.Requests*100 || *o.Seconds < 0.1 {
			t.Error(out)
		}
		if !(0 < *o.P50 && *o.P50 <= *o.P99 && *o.P99 <= *o.Max) || *o.Max > *o.Seconds*1e6 {
			t.Error(out)
		}
	})
}

func TestLoadTable(t *testing.T) {
	backendtest.Need(t)
	status, out, errs := shLoad(t.Context(), "--addr", echoServer(t, echoBack), "--duration", "20ms", "--rate", "1000", "--think", "1ms")
	for line := range strings.Lines(errs) { // on a slow machine it takes more than a second
		if !progressLine.MatchString(line) {
			t.Errorf("progress %q", line)
		}
	}
	if status != 0 {
		t.Fatalf("status %d: %s", status, errs)
	}
	var names []string
	for line := range strings.Lines(out) {
		names = append(names, strings.Fields(line)[0])
	}
	want := "connections requests requests/s errors bytes bytes/s time p50 p90 p99 p99.9 max"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("rows %q", got)
	}
}

var progressLine = regexp.MustCompile(`^ *[0-9]+ s  [0-9,]+ requests, [0-9.,]+/s, [0-9.]+ [KMG]?i?B/s, [0-9]+ errors\n$`)

// Numbers are grouped, and have the units that people use.
func TestLoadUnits(t *testing.T) {
	r := load.Result{Totals: load.Totals{Requests: 1234567, Bytes: 1234567 * 64, Elapsed: 10 * time.Second}, Connections: 1000,
		P50: 43 * time.Microsecond, P90: 912345, P99: 1900 * time.Microsecond, P999: 23 * time.Millisecond, Max: 1200 * time.Millisecond}
	got := strings.Join(strings.Fields(loadTable(&r)), " ")
	want := "connections 1,000 requests 1,234,567 requests/s 123,457 errors 0 bytes 75 MiB bytes/s 7.5 MiB time 10.000 s " +
		"p50 43 µs p90 912 µs p99 1.9 ms p99.9 23 ms max 1.2 s"
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// Where standard error is no terminal, each second has a line, with what was done in it. With
// --json there is none.
func TestLoadProgress(t *testing.T) {
	var out strings.Builder
	f := &loadFlags{Config: load.Config{Duration: 10 * time.Second}}
	show, clear := f.progress(&out)
	show(load.Totals{Requests: 1000, Bytes: 64000, Elapsed: time.Second})
	show(load.Totals{Requests: 5000, Bytes: 320000, Elapsed: 2 * time.Second, Errors: 1})
	clear()
	if want := "  1 s  1,000 requests, 1,000/s, 63 KiB/s, 0 errors\n  2 s  5,000 requests, 4,000/s, 250 KiB/s, 1 errors\n"; out.String() != want {
		t.Errorf("%q\nwant %q", out.String(), want)
	}
	f.json = true
	if show, _ := f.progress(&out); show != nil {
		t.Error("progress with --json")
	}
}

// Failures are in the totals and in the exit status.
func TestLoadFails(t *testing.T) {
	backendtest.Need(t)
	status, out, errs := shLoad(t.Context(), "--addr", echoServer(t, func(c net.Conn) {
		io.ReadFull(c, make([]byte, 64))
	}), "--json", "--connections", "3")
	if o := decodeLoad(t, out); status != 1 || *o.Errors != 3 || !strings.Contains(errs, "3 of 3 connections") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}

	bound, err := sock.New(sock.TCP4) // so that no other socket can listen there
	if err != nil {
		t.Fatal(err)
	}
	defer bound.Close()
	if err := bound.Bind(sock.Loopback); err != nil {
		t.Fatal(err)
	}
	addr := bound.LocalAddr().String()
	status, out, errs = shLoad(t.Context(), "--addr", addr, "--json", "--connections", "3")
	if o := decodeLoad(t, out); status != 1 || *o.Errors != 3 || *o.Requests != 0 || !strings.Contains(errs, "no connection to "+addr) {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
}

// After an interrupt the exit status is 0 and the totals are printed.
func TestLoadInterrupted(t *testing.T) {
	backendtest.Need(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	status, out, errs := shLoad(ctx, "--addr", echoServer(t, func(c net.Conn) {
		b := make([]byte, 64)
		io.ReadFull(c, b)
		cancel()
		c.Write(b)
		echoBack(c)
	}), "--json", "--connections", "1", "--duration", "1h")
	if o := decodeLoad(t, out); status != 0 || errs != "" || *o.Requests < 1 || *o.Errors != 0 {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
}

func TestLoadWrongUsage(t *testing.T) {
	backendtest.Need(t)
	for _, c := range []struct{ args, says string }{
		{"", "--addr is missing"},
		{"--addr localhost", `--addr "localhost"`},
		{"--addr localhost:", "--addr"},
		{"--addr localhost:0", "--addr"},
		{"--addr :1 --connections 0", "--connections 0"},
		{"--addr :1 --connections 100001", "--connections 100001"},
		{"--addr :1 --connections many", "--connections"},
		{"--addr :1 --size 0", "--size 0"},
		{"--addr :1 --size 16777217", "--size 16777217"},
		{"--addr :1 --depth 0", "--depth 0"},
		{"--addr :1 --depth 1025", "--depth 1025"},
		{"--addr :1 --workers 0", "--workers 0"},
		{"--addr :1 --workers -1", "--workers -1"},
		{"--addr :1 --rate -1", "--rate -1"},
		{"--addr :1 --rate NaN", "--rate NaN"},
		{"--addr :1 --rate +Inf", "--rate +Inf"},
		{"--addr :1 --think -1s", "--think -1s"},
		{"--addr :1 --duration 0s", "--duration 0s"},
		{"--addr :1 --duration 2562047h", "--duration 2562047h"},
		{"--addr :1 --timeout 0s", "--timeout 0s"},
		{"--addr :1 --backend abacus", `"abacus"`},
		{"--addr :1 --insecure", "--tls"},
		{"--addr :1 --ca x", "--tls"},
		{"--addr :1 --tls --ca x --insecure", "exclude each other"},
		{"--addr :1 extra", `"extra"`},
		{"--addr :1 --abacus", "--abacus"},
	} {
		status, out, errs := shLoad(t.Context(), strings.Fields(c.args)...)
		if status != 2 || out != "" || !strings.Contains(errs, c.says) {
			t.Errorf("%s: status %d, output %q, errors %q", c.args, status, out, errs)
		}
	}
}

// With TLS it loads serve --tls, and accepts only certificates that it was told to trust.
func TestLoadTLS(t *testing.T) {
	backendtest.Need(t)
	if wine.KeepsPort.Here() {
		t.Skip(wine.KeepsPort)
	}
	cert, _, err := selfcert.New(24*time.Hour, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	certText, keyText, err := selfcert.PEM(cert)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	os.WriteFile(certFile, certText, 0o600)
	os.WriteFile(keyFile, keyText, 0o600)
	backendtest.Each(t, func(t *testing.T, b string) {
		c, stop := served(t, "echo", "--tls", "--cert", certFile, "--key", keyFile, "--backend", b)
		addr := c.RemoteAddr().String()
		for _, c := range []struct {
			flags  []string
			status int
			says   string
		}{
			{[]string{"--ca", certFile}, 0, ""},
			{[]string{"--insecure"}, 0, ""},
			{nil, 1, "certificate"},
			{[]string{"--ca", keyFile}, 1, keyFile},
			{[]string{"--ca", "no-such-file"}, 1, "no-such-file"},
		} {
			status, out, errs := shLoad(t.Context(), append([]string{"--addr", addr, "--backend", b, "--tls", "--json",
				"--connections", "10", "--depth", "2", "--duration", "100ms"}, c.flags...)...)
			if status != c.status || !strings.Contains(errs, c.says) {
				t.Errorf("%v: status %d: %s", c.flags, status, errs)
			}
			if status == 0 {
				if o := decodeLoad(t, out); *o.Requests < 20 || *o.Errors != 0 {
					t.Errorf("%v: %s", c.flags, out)
				}
			}
		}
		c.Close()
		stop()
	})
}
