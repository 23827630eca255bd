//go:build unix

package main

import (
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// On SIGHUP the proxy is replaced: new connections go through the new process, the old ones on
// through the old process, which ends with them.
func TestProxyRestart(t *testing.T) {
	backend, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	p := start(t, "proxy", "--tcp", "--addr", "127.0.0.1:0", "--to", backend.Addr().String(), "--check", "0")
	// banner reads what both processes log until one has begun, and, with ended, the other one
	// accepts no more.
	banner := func(ended bool) (address string, pid int) {
		for address == "" || ended {
			line, err := p.banner.ReadString('\n')
			if found := regexp.MustCompile(`proxy on (\S+): .* process (\d+)`).FindStringSubmatch(line); found != nil {
				address = found[1]
				pid, _ = strconv.Atoi(found[2])
			}
			ended = ended && !strings.Contains(line, "no more connections")
			if err != nil {
				t.Fatalf("%q, %v", line, err)
			}
		}
		return address, pid
	}
	exchange := func(client, server net.Conn) {
		t.Helper()
		b := make([]byte, 1)
		io.WriteString(client, "x")
		if _, err := io.ReadFull(server, b); err != nil {
			t.Fatal(err)
		}
		io.WriteString(server, "y")
		if _, err := io.ReadFull(client, b); err != nil {
			t.Fatal(err)
		}
	}
	connect := func(to string) (client, server net.Conn) {
		t.Helper()
		client, _ = dialProxy(t, to)
		server, err := backend.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { server.Close() })
		exchange(client, server)
		return client, server
	}
	first, _ := banner(false)
	oldClient, oldServer := connect(first)
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	second, pid := banner(true)
	successor, err := os.FindProcess(pid)
	if err != nil || second != first {
		t.Fatalf("%s, %v, want %s", second, err, first)
	}
	defer func() {
		successor.Signal(syscall.SIGTERM)
		io.Copy(io.Discard, p.banner) // until it has ended
	}()
	exchange(oldClient, oldServer)
	newClient, newServer := connect(first)
	oldClient.Close()
	oldServer.Close()
	if state, err := p.Process.Wait(); err != nil || !state.Success() { // Wait of the command would wait for both
		t.Errorf("the old process: %v, %v", state, err)
	}
	exchange(newClient, newServer)
	newClient.Close()
	newServer.Close()
}
