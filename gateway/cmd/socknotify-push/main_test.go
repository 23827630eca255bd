package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/golang-jwt/jwt/v5"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/freeport"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

// commandEnv has the command line of a process that is not a test but the command.
const commandEnv = "SOCKNOTIFY_PUSH_ARGS"

func TestMain(m *testing.M) {
	if args := os.Getenv(commandEnv); args != "" {
		go func() { // the process ends with the test's
			io.Copy(io.Discard, os.Stdin)
			os.Exit(3)
		}()
		os.Exit(command(context.Background(), strings.Split(args, " "), os.Stdout, os.Stderr))
	}
	leaks.Main(m)
}

// startProcess runs the command in a process of its own, until the returned function kills it.
func startProcess(t *testing.T, args ...string) (p *os.Process, kill func()) {
	t.Helper()
	return startProcessBy(t, (*exec.Cmd).Start, args...)
}

// startProcessBy is startProcess for a process that is started in a way of its own.
func startProcessBy(t *testing.T, begin func(*exec.Cmd) error, args ...string) (p *os.Process, kill func()) {
	t.Helper()
	c := exec.Command(must1(os.Executable()))
	c.Env = append(os.Environ(), commandEnv+"="+strings.Join(args, " "))
	stdin, err := c.StdinPipe()
	must(t, err)
	var log bytes.Buffer
	c.Stderr = &log
	must(t, begin(c))
	kill = sync.OnceFunc(func() {
		c.Process.Kill()
		c.Wait()
		stdin.Close()
		if t.Failed() {
			t.Logf("%s: %s", args, log.Bytes())
		}
	})
	t.Cleanup(kill)
	return c.Process, kill
}

// A member is one of the three processes of a cluster.
type member struct {
	*os.Process
	url, debug string
	args       []string
	begin      func(*exec.Cmd) error // nil is Start
	kill       func()
}

// start starts the process, again if it was killed.
func (m *member) start(t *testing.T) {
	t.Helper()
	begin := (*exec.Cmd).Start
	if m.begin != nil {
		begin = m.begin
	}
	m.Process, m.kill = startProcessBy(t, begin, m.args...)
}

// startMembers starts a cluster, and waits until it is ready. more are flags of each member.
func startMembers(t *testing.T, more ...string) (all []*member, urls []string) {
	t.Helper()
	addrs := freeport.Addrs(t, 9)
	for i := range 3 {
		m := &member{url: "http://" + addrs[i], debug: "http://" + addrs[6+i]}
		m.args = append([]string{"--addr", addrs[i], "--name", fmt.Sprint("n", i), "--store", t.TempDir(),
			"--cluster", addrs[3+i], "--routes", strings.Join(addrs[3:6], ","), "--debug-addr", addrs[6+i]}, more...)
		m.start(t)
		all, urls = append(all, m), append(urls, m.url)
	}
	for _, url := range urls {
		until(t, "a member is ready", func() bool {
			code, _ := ask(t, "GET", url+"/readyz", "")
			return code == http.StatusOK
		})
	}
	return all, urls
}

// mercureFlags returns flags for Mercure, and a token that allows everything.
func mercureFlags(t *testing.T) (flags []string, token string) {
	t.Helper()
	key := []byte("a secret of 32 bytes, for a test")
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, key, 0o600))
	topics, selectors := []string{">"}, []string{"*"}
	token = must1(jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"exp":     time.Now().Add(24 * time.Hour).Unix(),
		"push":    map[string]any{"read": topics, "write": topics},
		"mercure": map[string]any{"publish": selectors, "subscribe": selectors},
	}).SignedString(key))
	return []string{"--mercure", "--jwt-secret", secret}, token
}

// A begunConn is a connection of which some bytes were read with the answer to its request.
type begunConn struct {
	net.Conn
	in io.Reader
}

func (c *begunConn) Read(b []byte) (int, error) { return c.in.Read(b) }

// dialSocket opens a WebSocket. The first message may have come with the answer.
func dialSocket(address string) (net.Conn, error) {
	dialer := ws.Dialer{Timeout: 5 * time.Second}
	conn, rest, _, err := dialer.Dial(context.Background(), address)
	if rest != nil {
		b := bytes.Clone(must1(rest.Peek(rest.Buffered())))
		conn = &begunConn{conn, io.MultiReader(bytes.NewReader(b), conn)}
	}
	return conn, err
}

func must1[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	await.Until(t, what, f)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// --version prints the version of the module, on the standard output.
func TestVersion(t *testing.T) {
	var out, wrong bytes.Buffer
	if status := command(t.Context(), []string{"--version"}, &out, &wrong); status != 0 || wrong.Len() > 0 {
		t.Errorf("status %d, %s", status, wrong.String())
	}
	if got := out.String(); !strings.HasPrefix(got, "socknotify-push ") || !strings.Contains(got, runtime.Version()) {
		t.Errorf("got %q", got)
	}
}

// A wrong command line is refused with the status 2 and a message that names what is wrong.
func TestWrongUsage(t *testing.T) {
	for args, want := range map[string]string{
		"--sync sometimes":                           "--sync sometimes",
		"--slow-policy wait":                         "--slow-policy wait",
		"--compression 10":                           "--compression 10",
		"--window 1h --max-age 1m":                   "--window 1h",
		"--jwt-issuer x":                             "--jwt-issuer",
		"--cert x":                                   "--cert",
		"--cert x --key y --h2c":                     "--h2c",
		"--cluster 127.0.0.1:1":                      "--routes",
		"--jwks x --jwt-secret y":                    "--jwks",
		"--nats x --cluster a --routes b":            "--nats",
		"--nats-ca x":                                "need --nats",
		"backup --nats-creds x y":                    "need --nats",
		"--nats x --nats-key y":                      "--nats-cert",
		"--debug-addr :1":                            "--debug-token",
		"--debug-addr 10.0.0.1:1":                    "--debug-token",
		"--debug-token x":                            "--debug-addr",
		"--nats-addr 127.0.0.1:1 --nats-addr-cert x": "--nats-addr-key",
		"--nats-addr-password x":                     "need --nats-addr",
		"--cluster 10.0.0.1:1 --routes 127.0.0.1:1":  "10.0.0.1:1 is not a loopback address",
		"--cluster 127.0.0.1:1 --routes 127.0.0.1:1,b.example:1":     "b.example:1 is not a loopback address",
		"--cluster 127.0.0.1:1 --routes 127.0.0.1:1 --cluster-key x": "--cluster-cert",
		"--cluster-insecure": "need --cluster",
		"--cluster 127.0.0.1:1 --routes 127.0.0.1:1 --cluster-insecure --cluster-key x --cluster-cert y --cluster-ca z": "want one",
		"extra":                      "extra",
		"--restore x --await-stream": "--restore",
		"backup":                     "one file",
		"backup --nothing x":         "nothing",
		"reshard":                    "one number",
		"reshard 0":                  "1 to 64",
		"reshard four":               "one number",
		"--shards 65":                "--shards 65",
		"--nothing":                  "nothing",
	} {
		var out bytes.Buffer
		if status := command(t.Context(), strings.Fields(args), io.Discard, &out); status != 2 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: status %d, %q", args, status, out.String())
		}
	}
	short := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(short, []byte("short"), 0o600))
	node := "--addr 127.0.0.1:0 --name x --store " + t.TempDir() + " "
	for args, want := range map[string]string{
		"--addr 127.0.0.1:0 --jwt-secret " + short:                                "32 bytes",
		"--addr 127.0.0.1:0 --jwt-secret /no/such":                                "/no/such",
		"--addr 127.0.0.1:0 --jwks http://127.0.0.1/":                             "https",
		"--addr 127.0.0.1:x":                                                      "unknown port",
		"--addr 127.0.0.1:0 --webhook-secret /no/such":                            "/no/such",
		node + "--webhook-connect https://example.org/ --webhook-secret " + short: "24 bytes",
		"--addr 127.0.0.1:0 --cert /no/such --key /no/such":                       "/no/such",
		"--addr 127.0.0.1:0 --debug-addr :0 --debug-token " + short:               "16 bytes",
		"--addr 127.0.0.1:0 --nats nats://127.0.0.1:1 --nats-creds /no":           "/no",
		node + "--presence a..b":                                                  "Presence",
		"--addr 127.0.0.1:0 --restore /no/such":                                   "/no/such",
		"backup --store /no/such x":                                               "/no/such",
		"backup --nats nats://127.0.0.1:1 x":                                      "--nats",
		"--addr 127.0.0.1:0 --nats nats://127.0.0.1:1":                            "--nats",
	} {
		var out bytes.Buffer
		if status := command(t.Context(), strings.Fields(args), io.Discard, &out); status != 1 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: status %d, %q", args, status, out.String())
		}
	}
}

var caller = &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

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
func start(t *testing.T, args ...string) (url, debug string, stop func() int) {
	addrs := freeport.Addrs(t, 2)
	ctx, cancel := context.WithCancel(context.Background())
	status := make(chan int, 1)
	go func() {
		common := []string{"--addr", addrs[0], "--debug-addr", addrs[1], "--name", "one", "--drain", "100ms"}
		status <- command(ctx, append(common, args...), io.Discard, io.Discard)
	}()
	stop = sync.OnceValue(func() int {
		cancel()
		return <-status
	})
	t.Cleanup(func() { stop() })
	url = "http://" + addrs[0]
	if slices.Contains(args, "--cert") {
		url = "https://" + addrs[0]
	}
	until(t, "the command is ready", func() bool {
		code, _ := ask(t, "GET", url+"/readyz", "")
		return code == http.StatusOK
	})
	return url, "http://" + addrs[1], stop
}

// events subscribes, and returns a function that returns the next line with a prefix.
func events(t *testing.T, url, topics, id string) (next func(prefix string) string, end func()) {
	return stream(t, url, "/events?"+topics, id)
}

// stream is events for any path.
func stream(t *testing.T, url, path, id string) (next func(prefix string) string, end func()) {
	scheme, addr, _ := strings.Cut(url, "://")
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	if scheme == "https" {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: %s\r\n\r\n", path, id)
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

// The command serves, shows what it does, sends its clients away when it is told to end, and has every event after a
// restart.
func TestCommand(t *testing.T) {
	store := t.TempDir()
	url, debug, stop := start(t, "--store", store)
	next, end := events(t, url, "topic=news", "")
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
		"/metrics?":          `socknotify_park_rejected_requests_total{server="http"} 0`,
		"/status":            `"Conns":1`,
		"/debug/socknotify/": "<html",
	} {
		until(t, path+" has "+want, func() bool { // the client may have the event before it is counted
			code, body := ask(t, "GET", debug+path, "")
			return code == http.StatusOK && strings.Contains(body, want)
		})
	}
	for _, path := range []string{"/metrics", "/status", "/"} { // a page of another site
		r, err := http.NewRequest("GET", debug+path, nil)
		must(t, err)
		r.Host = "rebound.example.org"
		answer, err := caller.Do(r)
		must(t, err)
		answer.Body.Close()
		if answer.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("%s for another host: %s", path, answer.Status)
		}
	}
	if status := stop(); status != 0 {
		t.Fatalf("status %d", status)
	}
	if got := next("data: "); got != io.EOF.Error() {
		t.Errorf("the client got %q at the end", got)
	}
	url, _, stop = start(t, "--store", store)
	next, end = events(t, url, "topic=news", first)
	defer end()
	if got := next("data: "); got != "hello" {
		t.Errorf("after a restart: %q", got)
	}
	if status := stop(); status != 0 {
		t.Errorf("status %d", status)
	}
}

// A gateway that uses a NATS of another process goes on when that ends and comes back, and its clients miss nothing.
func TestNATS(t *testing.T) {
	addrs := freeport.Addrs(t, 2)
	node := []string{"--addr", addrs[0], "--nats-addr", addrs[1], "--store", t.TempDir(), "--name", "external"}
	_, kill := startProcess(t, node...)
	until(t, "the other process is ready", func() bool {
		code, _ := ask(t, "GET", "http://"+addrs[0]+"/readyz", "")
		return code == http.StatusOK
	})
	url, _, stop := start(t, "--nats", "nats://"+addrs[1])
	next, end := events(t, url, "topic=news", "")
	defer end()
	first := next("id: ")
	for i, publisher := range []string{url, "http://" + addrs[0]} {
		if code, body := ask(t, "POST", publisher+"/publish?topic=news", fmt.Sprint(i)); code != http.StatusOK {
			t.Fatal(code, body)
		}
		if got := next("data: "); got != fmt.Sprint(i) {
			t.Fatalf("got %q, want %d", got, i)
		}
	}
	kill()
	if code, body := ask(t, "POST", url+"/publish?topic=other", "lost"); code != http.StatusServiceUnavailable {
		t.Errorf("without NATS: %d %s", code, body)
	}
	startProcess(t, node...)
	until(t, "publishing goes on", func() bool {
		code, _ := ask(t, "POST", url+"/publish?topic=news", "2")
		return code == http.StatusOK
	})
	if got := next("data: "); got != "2" {
		t.Errorf("got %q", got)
	}
	again, endAgain := events(t, url, "topic=news", first)
	defer endAgain()
	for i := range 3 {
		if got := again("data: "); got != fmt.Sprint(i) {
			t.Errorf("after the restart: got %q, want %d", got, i)
		}
	}
	if status := stop(); status != 0 {
		t.Errorf("status %d", status)
	}
}

// A backup of a node's folder, and of a node that runs, starts another node with the same events and ids.
func TestBackup(t *testing.T) {
	store, addr := t.TempDir(), freeport.Addrs(t, 1)[0]
	url, _, stop := start(t, "--store", store, "--nats-addr", addr)
	next, end := events(t, url, "topic=news", "")
	first := next("id: ")
	end()
	if code, body := ask(t, "POST", url+"/publish?topic=news", "hello"); code != http.StatusOK {
		t.Fatal(code, body)
	}
	running, stopped := filepath.Join(t.TempDir(), "running"), filepath.Join(t.TempDir(), "stopped")
	write := func(args ...string) {
		t.Helper()
		var out bytes.Buffer
		if status := command(t.Context(), append([]string{"backup"}, args...), io.Discard, &out); status != 0 {
			t.Fatalf("backup %s: status %d: %s", args, status, out.String())
		}
	}
	write("--nats", "nats://"+addr, running)
	stop()
	write("--final", "--store", store, stopped)
	var out bytes.Buffer
	if status := command(t.Context(), []string{"backup", "--store", store, stopped}, io.Discard, &out); status != 1 {
		t.Errorf("a file that exists was overwritten: status %d: %s", status, out.String())
	}
	out.Reset()
	closed := []string{"--addr", "127.0.0.1:0", "--name", "one", "--store", store}
	status := command(t.Context(), closed, io.Discard, &out)
	if status != 1 || !strings.Contains(out.String(), "closed") {
		t.Errorf("after the final backup: status %d: %s", status, out.String())
	}
	for _, file := range []string{running, stopped} {
		url, _, stop := start(t, "--store", t.TempDir(), "--restore", file)
		next, end := events(t, url, "topic=news", first)
		if file == running { // the node may have stored more after the backup
			if got := next("data: "); !strings.HasPrefix(got, `{"reason":"epoch"`) {
				t.Errorf("%s: got %q", file, got)
			}
		}
		if got := next("data: "); got != "hello" {
			t.Errorf("%s: got %q", file, got)
		}
		end()
		stop()
	}
}
