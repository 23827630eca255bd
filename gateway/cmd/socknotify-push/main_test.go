package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A wrong command line is refused with the status 2 and a message that names what is wrong.
func TestWrongUsage(t *testing.T) {
	for args, want := range map[string]string{
		"--sync sometimes":                "--sync sometimes",
		"--slow wait":                     "--slow wait",
		"--cert x":                        "--cert",
		"--cluster 127.0.0.1:1":           "--routes",
		"--nats x --cluster a --routes b": "--nats",
		"extra":                           "extra",
		"--nothing":                       "nothing",
	} {
		var out bytes.Buffer
		if status := command(t.Context(), strings.Fields(args), &out); status != 2 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: status %d, %q", args, status, out.String())
		}
	}
	short := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(short, []byte("short"), 0o600))
	for args, want := range map[string]string{
		"--addr 127.0.0.1:0 --jwt-secret " + short:     "32 bytes",
		"--addr 127.0.0.1:0 --jwt-secret /no/such":     "/no/such",
		"--addr 127.0.0.1:x":                           "unknown port",
		"--addr 127.0.0.1:0 --nats nats://127.0.0.1:1": "--nats",
	} {
		var out bytes.Buffer
		if status := command(t.Context(), strings.Fields(args), &out); status != 1 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: status %d, %q", args, status, out.String())
		}
	}
}

var caller = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}

func ask(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	must(t, err)
	answer, err := caller.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	must(t, err)
	return answer.StatusCode, string(b)
}

// start runs the command until the returned function is called, which returns its status.
func start(t *testing.T, store string) (url, debug string, stop func() int) {
	var addrs []string
	for range 2 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		addrs = append(addrs, ln.Addr().String())
		ln.Close()
	}
	ctx, cancel := context.WithCancel(context.Background())
	status := make(chan int, 1)
	go func() {
		status <- command(ctx, []string{"--addr", addrs[0], "--debug-addr", addrs[1], "--store", store, "--name", "one", "--drain", "100ms"}, io.Discard)
	}()
	stop = sync.OnceValue(func() int {
		cancel()
		return <-status
	})
	t.Cleanup(func() { stop() })
	url = "http://" + addrs[0]
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if code, _ := ask(t, "GET", url+"/readyz", ""); code == http.StatusOK {
			return url, "http://" + addrs[1], stop
		}
		if time.Now().After(end) {
			t.Fatal("timed out waiting for the command")
		}
	}
}

// events subscribes, and returns a function that returns the next line with a prefix.
func events(t *testing.T, url, id string) (next func(prefix string) string, end func()) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	must(t, err)
	fmt.Fprintf(conn, "GET /events?topic=news HTTP/1.1\r\nHost: x\r\nLast-Event-ID: %s\r\n\r\n", id)
	in := bufio.NewReader(conn)
	return func(prefix string) string {
		for {
			conn.SetReadDeadline(time.Now().Add(time.Minute))
			line, err := in.ReadString('\n')
			if err != nil {
				return err.Error()
			}
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				return strings.TrimSpace(rest)
			}
		}
	}, func() { conn.Close() }
}

// The command serves, shows what it does, sends its clients away when it is told to end, and has every event after a restart.
func TestCommand(t *testing.T) {
	store := t.TempDir()
	url, debug, stop := start(t, store)
	next, end := events(t, url, "")
	defer end()
	first := next("id: ")
	if code, body := ask(t, "POST", url+"/publish?topic=news", "hello"); code != http.StatusOK {
		t.Fatal(code, body)
	}
	if got := next("data: "); got != "hello" {
		t.Fatalf("got %q", got)
	}
	for path, want := range map[string]string{
		"/metrics":           "socknotify_push_delivered_total 1",
		"/status":            `"Clients":1`,
		"/debug/socknotify/": "<html",
	} {
		if code, body := ask(t, "GET", debug+path, ""); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, without %q: %s", path, code, want, body)
		}
	}
	if status := stop(); status != 0 {
		t.Fatalf("status %d", status)
	}
	if got := next("data: "); got != io.EOF.Error() {
		t.Errorf("the client got %q at the end", got)
	}
	url, _, stop = start(t, store)
	next, end = events(t, url, first)
	defer end()
	if got := next("data: "); got != "hello" {
		t.Errorf("after a restart: %q", got)
	}
	if status := stop(); status != 0 {
		t.Errorf("status %d", status)
	}
}
