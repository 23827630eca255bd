package main

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/leaks"
)

// TestMain runs the program itself in the process that TestEcho starts.
func TestMain(m *testing.M) {
	if os.Getenv("ECHO_MAIN") != "" {
		main()
	}
	leaks.Main(m)
}

func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```go\n"+string(program)+"```\n") {
		t.Error("README.md does not show main.go as it is")
	}
}

func TestEcho(t *testing.T) {
	for _, b := range socknotify.Backends() {
		t.Run(b, func(t *testing.T) { echo(t, b) })
	}
}

func echo(t *testing.T, backend string) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "ECHO_MAIN=1", socknotify.BackendEnv+"="+backend)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	line, err := bufio.NewReader(log).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, addr, ok := strings.Cut(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("log says %q", line)
	}

	// More connections than workers, all open at once, each served more than once.
	var conns []net.Conn
	for range 20 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(2 * time.Minute))
		conns = append(conns, c)
	}
	for _, text := range []string{"first", "second", "third"} {
		for _, c := range conns {
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range conns {
			got := make([]byte, len(text))
			if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
				t.Fatalf("echo %q, %v", got, err)
			}
		}
	}
	for _, c := range conns {
		c.(*net.TCPConn).CloseWrite()
		if n, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("read %d bytes, %v; want the server to close", n, err)
		}
	}
}
