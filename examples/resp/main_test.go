package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/freeport"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/server"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// serve serves until the test ends.
func serve(t *testing.T, backend string) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server.Server[struct{}]{Handler: new(store), Backend: backend, MaxMessage: 65 << 20}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; err != server.ErrServerClosed {
			t.Error(err)
		}
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(5 * time.Minute))
	return c
}

// command is a command as clients send it.
func request(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

func bulk(value string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(value), value) }

// expect reads an answer.
func expect(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Fatalf("%.100q, %v; want %.100q", got[:n], err, want)
	}
}

func TestCommands(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		all := request("SET", "k", "a\r\nb") + request("get", "k") + request("GET", "none") + "PING\r\nSET line x\r\nGET line\r\n" +
			request("SET", "", "") + request("GET", "") + request("HELLO", "3") + request("SET", "k")
		answers := "+OK\r\n" + bulk("a\r\nb") + "$-1\r\n+PONG\r\n+OK\r\n" + bulk("x") + "+OK\r\n" + bulk("") +
			strings.Repeat("-ERR unknown command\r\n", 2)
		addr := serve(t, backend)
		for _, size := range []int{1, 2, 7, len(all)} { // byte by byte, in pieces, all together
			c := dial(t, addr)
			for rest := all; rest != ""; {
				k := min(size, len(rest))
				if _, err := io.WriteString(c, rest[:k]); err != nil {
					t.Fatal(err)
				}
				rest = rest[k:]
			}
			expect(t, c, answers)
			c.Close()
		}
		for _, bad := range []string{"*x\r\n", "*\r\n", "*1\r\n\r\n", "*1\r\n4\r\nPING\r\n", "*1\r\n$-5\r\n", "*1\r\n$9999999999\r\n", "*2000\r\n", strings.Repeat("x", 65<<10)} {
			c := dial(t, addr)
			io.WriteString(c, bad)
			if b, _ := io.ReadAll(c); len(b) > 0 {
				t.Errorf("%.10q is answered with %q", bad, b)
			}
		}
	})
}

// An empty command has no answer, and the ones behind it have theirs. Redis itself answers the same,
// where it is installed.
func TestEmptyCommands(t *testing.T) {
	var all strings.Builder
	answers := ""
	for i, empty := range []string{"*0\r\n", "*-1\r\n", "*-7\r\n", "\r\n", "\n", " \t \r\n", "*0\r\n\r\n*-1\r\n"} {
		value := fmt.Sprint("value ", i)
		all.WriteString(empty + request("SET", "k", value) + empty + request("GET", "k") + empty + "PING\r\n")
		answers += "+OK\r\n" + bulk(value) + "+PONG\r\n"
	}
	ask := func(t *testing.T, addr string) {
		c := dial(t, addr)
		if _, err := io.WriteString(c, all.String()); err != nil {
			t.Fatal(err)
		}
		c.(*net.TCPConn).CloseWrite()
		if got, err := io.ReadAll(c); err != nil || string(got) != answers {
			t.Errorf("%q, %v; want %q", got, err, answers)
		}
	}
	backendtest.Each(t, func(t *testing.T, backend string) { ask(t, serve(t, backend)) })
	t.Run("redis-server", func(t *testing.T) { ask(t, redis(t)) })
}

// redis starts Redis itself, which ends with the test. Debian's redis-tools has its program under
// another name; it goes by the name that it is called by.
func redis(t *testing.T) (addr string) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		path, err = exec.LookPath("redis-check-rdb")
	}
	if err != nil {
		t.Skip(err)
	}
	addr = freeport.Addrs(t, 1)[0]
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())
	cmd.Args[0] = "redis-server"
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	await.Until(t, "redis-server listens", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return addr
}

// Values of 8 MiB, which are asked for before the first is read.
func TestLargeValues(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		c := dial(t, serve(t, backend))
		const n = 5
		value := string(bytes.Repeat([]byte("0123456789abcde\n"), 8<<20/16))
		go func() {
			for i := range n {
				io.WriteString(c, request("SET", fmt.Sprint(i), value[i:]))
			}
			for i := range n {
				io.WriteString(c, request("GET", fmt.Sprint(i)))
			}
		}()
		r := bufio.NewReader(c)
		expect(t, r, strings.Repeat("+OK\r\n", n))
		for i := range n {
			expect(t, r, bulk(value[i:]))
		}
	})
}

// 10,000 commands arrive before the first answer is read.
func TestPipelining(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		c := dial(t, serve(t, backend))
		const n = 10_000
		var all, answers strings.Builder
		for i := range n / 2 {
			value := strings.Repeat("v", i%300)
			all.WriteString(request("SET", fmt.Sprint(i%7), value) + request("GET", fmt.Sprint(i%7)))
			answers.WriteString("+OK\r\n" + bulk(value))
		}
		sent := make(chan error, 1)
		go func() {
			_, err := io.WriteString(c, all.String())
			sent <- err
		}()
		select {
		case <-sent:
		case <-time.After(100 * time.Millisecond): // the server waits for its answers to be read
		}
		expect(t, c, answers.String())
	})
}

// The programs of Redis talk to it, where they are installed.
func TestRedisTools(t *testing.T) {
	addr := serve(t, "")
	_, port, _ := net.SplitHostPort(addr)
	run := func(name string, args ...string) string {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(err)
		}
		out, err := exec.Command(name, append([]string{"-p", port}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return string(out)
	}
	if got := run("redis-cli", "SET", "key", "some value"); got != "OK\n" {
		t.Errorf("SET: %q", got)
	}
	if got := run("redis-cli", "GET", "key"); got != "some value\n" {
		t.Errorf("GET: %q", got)
	}
	if got := run("redis-benchmark", "-q", "-n", "10000", "-c", "50", "-P", "16", "-t", "ping,set,get"); strings.Count(got, "requests per second") < 4 {
		t.Errorf("redis-benchmark: %s", got)
	}
}
