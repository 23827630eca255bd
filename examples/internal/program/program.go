// Package program runs the main of an example in a process of its own, for its tests.
package program

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

const variable = "SOCKNOTIFY_TEST_MAIN"

// patience bounds the wait for anything that must happen.
const patience = 5 * time.Minute

// Main is a TestMain. In the processes of Start it runs main instead of the tests.
func Main(m *testing.M, main func()) {
	if os.Getenv(variable) != "" {
		os.Unsetenv(variable)
		main()
		os.Exit(0)
	}
	leaks.Main(m)
}

// A Process is a running program.
type Process struct {
	Addr string // where it listens, according to its log

	cmd    *exec.Cmd
	stdout bytes.Buffer
	ended  chan struct{} // closed when it has ended, with err
	err    error
	mu     sync.Mutex
	log    strings.Builder
}

// Start starts the program and waits until it listens. It is killed when the test is over.
func Start(t *testing.T, backend string, args ...string) *Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{cmd: exec.Command(self, args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), variable+"=1", socknotify.BackendEnv+"="+backend)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
	})
	p.Addr = p.Find(t, `listening on (\S+).*\n`)
	return p
}

// Write receives what the program logs.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// Log returns what the program has logged.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// Find waits until the log matches an expression, and returns the first group.
func (p *Process) Find(t *testing.T, expression string) string {
	t.Helper()
	re := regexp.MustCompile(expression)
	late := time.After(patience)
	for waits := true; ; {
		if found := re.FindStringSubmatch(p.Log()); found != nil {
			return found[1]
		}
		if !waits {
			t.Fatalf("no %s in the log: %s", expression, p.Log())
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-p.ended:
			waits = false
		case <-late:
			waits = false
		}
	}
}

// Dial connects to the program.
func (p *Process) Dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// Wait waits for the program to end, and returns its output.
func (p *Process) Wait(t *testing.T) string {
	t.Helper()
	timer := time.AfterFunc(patience, func() { p.cmd.Process.Kill() })
	defer timer.Stop()
	if <-p.ended; p.err != nil {
		t.Fatalf("%v: %s", p.err, p.Log())
	}
	return p.stdout.String()
}

// Interrupt interrupts the program, as Ctrl-C does. On Windows it does nothing, because no other
// process can.
func (p *Process) Interrupt(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		return
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	p.Wait(t)
}

// Echo tests an echo server: many connections, one whose peer reads slowly, and the end of each.
func (p *Process) Echo(t *testing.T) {
	t.Helper()
	var conns []net.Conn
	for range 20 {
		conns = append(conns, p.Dial(t))
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

	fill(t, conns[0])
	for _, c := range conns {
		c.(*net.TCPConn).CloseWrite()
		if n, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("read %d bytes, %v; want the server to close", n, err)
		}
	}
}

// fill sends without reading until the server stops receiving. Then it reads, and all bytes must
// come back.
func fill(t *testing.T, c net.Conn) {
	t.Helper()
	const line, most = "0123456789abcde\n", 256 << 20
	lines := bytes.Repeat([]byte(line), 4096)
	sent := 0
	for ; sent < most; c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)) {
		n, err := c.Write(lines[sent%len(line):])
		sent += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if sent >= most {
		t.Fatal("the server never stopped receiving")
	}
	got := make([]byte, sent)
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatalf("not all of %d bytes came back: %v", sent, err)
	}
	for i := range got {
		if got[i] != line[i%len(line)] {
			t.Fatalf("byte %d of %d is %q", i, sent, got[i])
		}
	}
}
