//go:build linux

package test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// The library is installed, and the example is built with it, by make and by CMake, and echoes.
func TestExample(t *testing.T) {
	need(t, "make", "pkg-config", "gcc")
	lib := built(t)
	prefix := t.TempDir()
	// BUILD has the shared library already; go build finds it in its cache.
	command(t, "", "make", "-s", "-C", "..", "install", "BUILD="+lib, "PREFIX="+prefix)
	t.Setenv("PKG_CONFIG_PATH", filepath.Join(prefix, "lib/pkgconfig"))
	t.Setenv("LD_LIBRARY_PATH", filepath.Join(prefix, "lib"))
	if err := os.CopyFS(filepath.Join(prefix, "example"), os.DirFS("../example")); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(prefix, "example")
	t.Run("make", func(t *testing.T) {
		command(t, dir, "make", "CFLAGS=-Wall -Wextra -Werror")
		onEach(t, func(t *testing.T, backend string) { echo(t, backend, filepath.Join(dir, "echo")) })
	})
	t.Run("cmake", func(t *testing.T) {
		need(t, "cmake")
		command(t, dir, "cmake", "-B", "out", ".")
		command(t, dir, "cmake", "--build", "out")
		echo(t, "epoll", filepath.Join(dir, "out/echo"))
	})
	t.Run("spellings", func(t *testing.T) {
		program := filepath.Join(prefix, "spellings.c")
		headers, err := os.ReadDir(filepath.Join(prefix, "include/socknotify/windows"))
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		var text strings.Builder
		for _, h := range headers {
			names[h.Name()] = true
			fmt.Fprintf(&text, "#include <%s>\n", h.Name())
		}
		for _, n := range []string{"WinSock2.h", "WS2tcpip.h", "Ws2tcpip.h", "MSWSock.h", "Mswsock.h",
			"Windows.h"} {
			if !names[n] {
				t.Errorf("%s is not installed", n)
			}
		}
		text.WriteString("int main(void) { LPFN_ACCEPTEX f = AcceptEx; return WSACleanup() || !f; }\n")
		if err := os.WriteFile(program, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		command(t, prefix, "sh", "-c", "gcc -Wall -Werror spellings.c -o spellings "+
			"$(pkg-config --cflags --libs socknotify) && ./spellings")
		command(t, "", "make", "-s", "-C", "..", "install", "BUILD="+lib, "PREFIX="+prefix) // again
	})
	t.Run("archive", func(t *testing.T) {
		program := filepath.Join(prefix, "static")
		command(t, dir, "gcc", "-I"+prefix+"/include/socknotify", "-I"+prefix+"/include/socknotify/windows", "echo.c", "-o", program,
			prefix+"/lib/libsocknotify.a", "-lpthread")
		echo(t, "epoll", program)
	})
}

// echo runs the server and has clients talk to it.
func echo(t *testing.T, backend, program string) {
	cmd := exec.CommandContext(t.Context(), program, "0", "4")
	cmd.Env = append(os.Environ(), "SOCKNOTIFY_BACKEND="+backend)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
	message := strings.Repeat("0123456789abcdef", 1<<12) // more than a socket takes at once
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(patience))
			go func() {
				for range 4 {
					io.WriteString(c, message)
				}
				c.(*net.TCPConn).CloseWrite()
			}()
			if got, err := io.ReadAll(c); err != nil || string(got) != strings.Repeat(message, 4) {
				t.Errorf("%d bytes came back, %v", len(got), err)
			}
		})
	}
	wg.Wait()
}
