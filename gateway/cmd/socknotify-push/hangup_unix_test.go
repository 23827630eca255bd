//go:build unix

package main

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/trust/authority"
	"github.com/socknotify/socknotify/internal/test/freeport"
)

// SIGHUP makes a node read its certificates. Its clients stay.
func TestHangup(t *testing.T) {
	dir := t.TempDir()
	cert, key, _ := authority.New(t, "old").Write(t, dir, "push", "127.0.0.1", time.Hour)
	addr := freeport.Addrs(t, 1)[0]
	url := "https://" + addr
	p, _ := startProcess(t, "--addr", addr, "--name", "one", "--store", t.TempDir(), "--cert", cert, "--key", key)
	until(t, "the command is ready", func() bool {
		code, _ := ask(t, "GET", url+"/readyz", "")
		return code == http.StatusOK
	})
	next, end := events(t, url, "topic=a", "")
	defer end()
	authority.New(t, "next").Write(t, dir, "push", "127.0.0.1", time.Hour)
	must(t, p.Signal(syscall.SIGHUP))
	until(t, "the new certificate is used", func() bool { return issuer(t, url) == "next" })
	if code, body := ask(t, "POST", url+"/publish?topic=a", "hello"); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	if got := next("data: "); got != "hello" {
		t.Errorf("got %q", got)
	}
}
