package idling

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/socknotify/socknotify/internal/test/qemu"
)

// Roles maps the names of roles to their main functions, which receive the arguments of Start.
type Roles map[string]func(args []string)

const roleEnv = "SOCKNOTIFY_TEST_ROLE"

// Play must be called first in TestMain. If the process was started for a role, Play runs it and returns true.
// Otherwise it returns false.
func (r Roles) Play() bool {
	name, args, _ := strings.Cut(os.Getenv(roleEnv), "|")
	play, ok := r[name]
	if ok {
		play(strings.Split(args, "|"))
	}
	return ok
}

// A Process is a child process that runs a role until the test ends.
type Process struct {
	t   testing.TB
	in  io.WriteCloser
	out *bufio.Reader
	end func() // ends the process
}

// Start starts a process. The test fails if the process writes to standard error.
func Start(t testing.TB, role string, args ...string) *Process {
	t.Helper()
	return start(t, os.Environ(), role, args...)
}

func start(t testing.TB, env []string, role string, args ...string) *Process {
	t.Helper()
	if qemu.StartsNoProgram.Here() {
		t.Skip(qemu.StartsNoProgram)
	}
	c := exec.Command(os.Args[0])
	c.Env = append(env, roleEnv+"="+role+"|"+strings.Join(args, "|"))
	var failed bytes.Buffer
	c.Stderr = &failed
	in, err := c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	end := sync.OnceFunc(func() {
		in.Close() // makes the process exit
		c.Wait()
		if failed.Len() > 0 {
			t.Errorf("%s: %s", role, failed.String())
		}
	})
	t.Cleanup(end)
	return &Process{t, in, bufio.NewReader(out), end}
}

// Say sends a line, unless text is empty, and returns the next line of the answer.
func (p *Process) Say(text string) string {
	p.t.Helper()
	if text != "" {
		fmt.Fprintln(p.in, text)
	}
	line, err := p.out.ReadString('\n')
	must(p.t, err)
	return strings.TrimSpace(line)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Dial connects to a server. A TLS handshake comes with the first write.
func Dial(address string, secure bool) (net.Conn, error) {
	conn, err := net.Dial("tcp", address)
	if err == nil && secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	return conn, err
}
