package docs_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
)

// The two echo programs of from-gnet.md run, and echo.
func TestGnetPrograms(t *testing.T) {
	const served = "127.0.0.1:9000"
	programs := 0
	for _, b := range parse("from-gnet.md", read(t, "from-gnet.md")).blocks {
		if !strings.HasPrefix(b.text, "package main") {
			continue
		}
		programs++
		if !strings.Contains(b.text, served) {
			t.Fatalf("the program does not serve on %s:\n%s", served, b.text)
		}
		addr := freeAddr(t)
		dir := t.TempDir()
		source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "echo.exe")
		if err := os.WriteFile(source, []byte(strings.ReplaceAll(b.text, served, addr)), 0o600); err != nil {
			t.Fatal(err)
		}
		// The current folder is in this module's workspace, which has both libraries.
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, source).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		server := exec.CommandContext(t.Context(), program)
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		for range await.Attempts(t, "the server listens on "+addr) {
			if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
				c.Close()
				break
			}
		}
		echoed(t, addr)
		server.Process.Kill()
		server.Wait()
	}
	if programs != 2 {
		t.Errorf("from-gnet.md has %d programs, want 2", programs)
	}
}

// freeAddr returns an address on loopback that was free a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
