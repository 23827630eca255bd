//go:build unix

package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// A process is the command in a process of its own.
type process struct {
	*exec.Cmd
	out    bytes.Buffer
	banner *bufio.Reader // standard error
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.CommandContext(t.Context(), self, args...)}
	p.Env = append(os.Environ(), asCommand+"=1")
	p.Stdout = &p.out
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.banner = bufio.NewReader(stderr)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.ProcessState == nil {
			p.Process.Kill()
			p.Wait()
		}
	})
	return p
}

// end sends a signal and returns the exit status.
func (p *process) end(t *testing.T, sig os.Signal) int {
	t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, p.banner)
	p.Wait()
	return p.ProcessState.ExitCode()
}

// serving starts an echo server.
func serving(t *testing.T) (p *process, addr string) {
	t.Helper()
	p = start(t, "serve", "echo", "--addr", "127.0.0.1:0")
	line, err := p.banner.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return p, regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
}

// A server that is interrupted or terminated sends what is queued for its peers, and prints totals.
func TestServeDrains(t *testing.T) {
	backendtest.Need(t)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		p, addr := serving(t)
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(2 * time.Minute))
		request := bytes.Repeat([]byte("x"), 1000)
		if _, err := conn.Write(request); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil { // the server has received the request
			t.Fatal(err)
		}
		if status := p.end(t, sig); status != 0 {
			t.Errorf("%v: status %d", sig, status)
		}
		if rest, err := io.ReadAll(conn); len(rest) != len(request)-1 || err != nil {
			t.Errorf("%v: %d bytes more, %v", sig, len(rest), err)
		}
		if want := "connections 1  messages 1  bytes 1000 "; !strings.HasPrefix(p.out.String(), want) {
			t.Errorf("%v: it printed %q", sig, p.out.String())
		}
	}
}

// A load that is interrupted waits for the answers under way and exits with status 0.
func TestLoadDrains(t *testing.T) {
	backendtest.Need(t)
	const connections = 7
	asked, interrupted := make(chan struct{}, connections), make(chan struct{})
	addr := echoServer(t, func(c net.Conn) {
		request := make([]byte, 64)
		if _, err := io.ReadFull(c, request); err != nil {
			return
		}
		asked <- struct{}{}
		<-interrupted
		c.Write(request)
		echoBack(c)
	})
	p := start(t, "load", "--addr", addr, "--connections", strconv.Itoa(connections), "--duration", "1h", "--json")
	for range connections {
		await.Receive(t, "a request", asked)
	}
	go func() {
		await.Pause(100 * time.Millisecond) // the answers are under way for a while
		close(interrupted)
	}()
	if status := p.end(t, os.Interrupt); status != 0 {
		t.Errorf("status %d", status)
	}
	if o := decodeLoad(t, p.out.String()); *o.Requests < connections || *o.Errors != 0 || *o.Bytes != 64**o.Requests {
		t.Error(p.out.String())
	}
}
