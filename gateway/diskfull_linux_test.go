package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/gateway/internal/event"
)

// On a full disk, events of durable topics are refused at once, and can be read; live topics go on. When there is room,
// publishing goes on by itself. Every event that was acknowledged is there, for a client that was connected all the time, for
// one that comes on the full disk, and for one after a restart.
func TestDiskFull(t *testing.T) {
	dir := smallDisk(t)
	node, err := Start(NodeConfig{Name: "one", Store: dir, Logger: quiet})
	must(t, err)
	t.Cleanup(node.Close)
	config := Config{Stream: StreamConfig{MaxBytes: 16 << 20}, MaxQueued: 64 << 20, StoreError: node.StoreError}
	s := newSiteOn(t, node, config)
	stop := watch(t, node, s)
	requests, err := node.Conn.SubscribeSync(event.StoredPrefix + ">")
	must(t, err)
	first := s.publish("a", "first")
	live, err := openWS(s.url, "topic=live.a")
	must(t, err)
	defer live.close()
	always, err := openSSE(s.url, "topic=a", first)
	must(t, err)
	received := make(chan string, 1000) // by the client that is connected all the time
	var receiving sync.WaitGroup
	receiving.Go(func() {
		for m, err := always.next(); err == nil; m, err = always.next() {
			received <- word(m)
		}
		close(received)
	})
	t.Cleanup(func() { always.close(); receiving.Wait() })
	until(t, "the clients have joined", func() bool { return s.members() == 2 })
	fill, err := os.Create(filepath.Join(dir, "fill"))
	must(t, err)
	defer fill.Close()

	var seen, acknowledged []string // the events, by their first word
	pad := strings.Repeat("x", 100<<10)
	for round := range 2 {
		fillDisk(t, fill, 1<<20+round*100<<10)
		end := time.Now().Add(2 * time.Minute)
		for i := 0; node.StoreError() == nil; i++ {
			if time.Now().After(end) {
				t.Fatal("timed out waiting until the full disk is noticed")
			}
			name := fmt.Sprint(round, ".", i)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err = s.Publish(ctx, "a", []byte(name+" "+pad), name)
			cancel()
			if err == nil {
				acknowledged = append(acknowledged, name)
			} else if !errors.Is(err, ErrUnavailable) {
				t.Fatal(err)
			}
		}
		must(t, node.Conn.Flush())
		for { // what was published until now
			if _, err := requests.NextMsg(time.Nanosecond); errors.Is(err, nats.ErrTimeout) {
				break
			}
		}
		before, key := s.Stats().Refused, fmt.Sprint("again", round)
		for range 2 {
			status, body := s.request("POST", "/publish?topic=a", key, "Idempotency-Key", key)
			if status != http.StatusServiceUnavailable || !strings.Contains(body, "disk") {
				t.Errorf("on a full disk: %d %q", status, body)
			}
		}
		if n := s.Stats().Refused - before; n != 2 {
			t.Errorf("%d were counted, want 2", n)
		}
		must(t, node.Conn.Flush())
		if m, err := requests.NextMsg(time.Nanosecond); err == nil {
			t.Errorf("JetStream was asked to store %q", m.Data)
		}
		s.publish("live.a", "still here")
		expect(t, live, message{Topic: "live.a", Data: "still here"})
		r, err := openSSE(s.url, "topic=a", first)
		must(t, err)
		readTo(t, r, acknowledged[len(acknowledged)-1])
		r.close()

		must(t, fill.Truncate(0))
		until(t, "publishing goes on", func() bool {
			status, _ := s.request("POST", "/publish?topic=a", key, "Idempotency-Key", key)
			return status == http.StatusOK
		})
		if r, err := s.Publish(t.Context(), "a", []byte(key), key); err != nil || !r.Duplicate {
			t.Errorf("a retry with the same key: %+v, %v", r, err)
		}
		acknowledged = append(acknowledged, key)
		for name := ""; name != key; seen = append(seen, name) {
			var ok bool
			if name, ok = <-received; !ok {
				t.Fatal("the client was disconnected")
			}
		}
	}
	t.Logf("%d events were acknowledged, %d were stored", len(acknowledged), len(seen))
	next := 0
	for i, name := range seen { // the others were stored without an acknowledgement
		if slices.Contains(seen[:i], name) {
			t.Errorf("%s came twice", name)
		}
		if next < len(acknowledged) && name == acknowledged[next] {
			next++
		}
	}
	if next != len(acknowledged) {
		t.Errorf("got %s, without %s, which was acknowledged", seen, acknowledged[next])
	}

	live.close()
	always.close()
	fillDisk(t, fill, 0) // a node starts on a full disk, too
	stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, s.Shutdown(ctx))
	node.Close()
	config.StoreError = nil
	s = newSite(t, dir, config)
	r, err := openSSE(s.url, "topic=a", first)
	must(t, err)
	defer r.close()
	if again := readTo(t, r, seen[len(seen)-1]); !slices.Equal(again, seen) {
		t.Errorf("after a restart: got %s, want %s", again, seen)
	}
}

// smallDisk returns a folder with a file system of its own.
func smallDisk(t *testing.T) string {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=32m"); err != nil {
		t.Skipf("the test needs a file system of its own, which this process may not mount: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	return dir
}

// watch runs Watch until the returned function is called.
func watch(t *testing.T, node *Node, s *site) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { node.Watch(ctx, s.Changed) })
	stop = func() {
		cancel()
		watching.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// word returns the first word of an event.
func word(m message) string {
	w, _, _ := strings.Cut(m.Data, " ")
	return w
}

// readTo reads events up to one, and returns their first words.
func readTo(t *testing.T, r reader, last string) (all []string) {
	t.Helper()
	for len(all) == 0 || all[len(all)-1] != last {
		m, err := r.next()
		must(t, err)
		all = append(all, word(m))
	}
	return all
}

// fillDisk fills a file system by a file, except for room bytes.
func fillDisk(t *testing.T, f *os.File, room int) {
	_, err := f.Seek(0, 2)
	must(t, err)
	block := make([]byte, 64<<10)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	end, err := f.Seek(0, 1)
	must(t, err)
	must(t, f.Truncate(end-int64(room)))
}
