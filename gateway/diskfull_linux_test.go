package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// On a full disk, events of durable topics are refused, live topics go on, and every event that was acknowledged is there
// after a restart.
func TestDiskFull(t *testing.T) {
	if testing.Short() {
		t.Skip("JetStream does not answer on a full disk, so each publish takes five seconds")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("TestDiskFull needs a file system of its own, which this process may not mount: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	node, err := Start(NodeConfig{Name: "one", Store: dir, Logger: quiet})
	must(t, err)
	config := Config{Stream: StreamConfig{MaxBytes: 8 << 20}}
	s := newSiteOn(t, node, config)
	t.Cleanup(node.Close) // before the gateway ends
	first := s.publish("a", "first")
	live, err := openWS(s.url, "topic=live.a")
	must(t, err)
	defer live.close()
	until(t, "the client has joined", func() bool { return s.members() == 1 })

	fill, err := os.Create(filepath.Join(dir, "fill"))
	must(t, err)
	defer fill.Close()
	block := make([]byte, 64<<10)
	for err == nil {
		_, err = fill.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	end, err := fill.Seek(0, 1)
	must(t, err)
	must(t, fill.Truncate(end-2<<20))
	pad := strings.Repeat("x", 64<<10)
	acknowledged := 0
	for ; acknowledged < 100 && err == nil; acknowledged++ {
		_, err = s.Publish(t.Context(), "a", fmt.Appendf(nil, "%d %s", acknowledged, pad), "")
	}
	acknowledged--
	if !errors.Is(err, ErrUnavailable) || acknowledged < 5 {
		t.Fatalf("%d events were acknowledged, then %v", acknowledged, err)
	}
	t.Logf("%d events were acknowledged, then: %v", acknowledged, err)
	before := s.Stats().Refused
	if status, body := s.request("POST", "/publish?topic=a", pad); status != http.StatusServiceUnavailable || body == "" {
		t.Errorf("the next event: %d %q", status, body)
	}
	if n := s.Stats().Refused - before; n != 1 {
		t.Errorf("%d were counted", n)
	}
	s.publish("live.a", "still here")
	expect(t, live, message{Topic: "live.a", Data: "still here"})

	live.close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, s.Shutdown(ctx))
	node.Close()
	must(t, fill.Truncate(0))
	s = newSite(t, dir, config)
	r, err := openSSE(s.url, "topic=a", first)
	must(t, err)
	defer r.close()
	for i := range acknowledged {
		m, err := r.next()
		must(t, err)
		if number, _, _ := strings.Cut(m.Data, " "); number != fmt.Sprint(i) {
			t.Fatalf("got %s, want %d of %d that were acknowledged", number, i, acknowledged)
		}
	}
	s.publish("a", "after")
	for {
		m, err := r.next()
		must(t, err)
		if m.Data == "after" {
			break
		}
	}
}
