// Package examples has a test of what all examples share.
package examples

import (
	"bytes"
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// Each program that serves says by --help how it is told its address, and prints the one it has.
func TestAddresses(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir, "./...").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	mains, err := filepath.Glob("*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	steps, err := filepath.Glob("tutorial/*/main.go")
	if err != nil || len(mains) == 0 || len(steps) == 0 {
		t.Fatal(mains, steps, err)
	}
	for _, main := range append(mains, steps...) {
		name := filepath.Base(filepath.Dir(main))
		if name == "demo" {
			continue // it serves nothing but itself
		}
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(dir, name)
			if runtime.GOOS == "windows" {
				program += ".exe"
			}
			serves(t, program)
		})
	}
}

// What a program is told so that it does not use a port that others may have.
var flags = map[string][]string{
	"restart": {"-tcp", "127.0.0.1:0"},
	"step5":   {"-addr", "127.0.0.1:0", "-debug-addr", "127.0.0.1:0"},
}

func serves(t *testing.T, program string) {
	name := strings.TrimSuffix(filepath.Base(program), ".exe")
	args := flags[name]
	if args == nil {
		args = []string{"-addr", "127.0.0.1:0"}
	}
	said, ended := start(t, program, "--help")
	await.Until(t, "--help ends the program", func() bool { return len(ended) > 0 || listening.MatchString(said()) })
	if len(ended) == 0 {
		t.Fatalf("--help is ignored:\n%s", said())
	}
	if err := <-ended; err != nil || !strings.Contains(said(), "  "+args[0]+" ") {
		t.Fatalf("--help: %v\n%s", err, said())
	}
	said, _ = start(t, program, args...)
	var addr string
	await.Until(t, "it prints its address", func() bool {
		addr = listening.FindString(said())
		return addr != ""
	})
	if _, addr, _ = strings.Cut(addr, "127.0.0.1:"); addr == "0" {
		t.Fatalf("it prints no port: %s", said())
	}
	network := "tcp"
	if name == "dns" {
		network = "udp"
	}
	c, err := net.Dial(network, "127.0.0.1:"+addr)
	if errors.Is(err, syscall.ECONNRESET) {
		return // it was accepted: the proxy's target refuses
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

var listening = regexp.MustCompile(`(listening on |chat on http://|curl http://)127\.0\.0\.1:\d+\b`)

// start starts a program, which is killed when the test is over. The function returns what it has
// said so far, and the channel has its result when it has ended.
func start(t *testing.T, program string, args ...string) (said func() string, ended chan error) {
	t.Helper()
	w, ended, gone := new(output), make(chan error, 1), make(chan struct{})
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		ended <- cmd.Wait()
		close(gone)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-gone
	})
	return w.String, ended
}

type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
