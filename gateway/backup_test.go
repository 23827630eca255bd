package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/stream"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/freeport"
)

// backupOf publishes events, and returns a backup with them, and the id of the one with the number half.
func backupOf(t *testing.T, half int) (b []byte, id string) {
	s := newSite(t, t.TempDir(), Config{})
	noise := make([]byte, 300)
	for i := range restored {
		for j := range noise {
			noise[j] = ' ' + byte(rand.IntN(90)) // it must not be compressed much
		}
		s.publish("b", string(noise))
		if at := s.publish("a", fmt.Sprint(i)); i == half {
			id = at
		}
	}
	var w bytes.Buffer
	must(t, CloseStream(t.Context(), s.node.Conn, ""))
	if _, err := s.Publish(t.Context(), "a", nil, ""); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a closed stream: %v", err)
	}
	config := Config{Conn: s.node.Conn, Logger: quiet}
	if _, err := New(t.Context(), config); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed stream: %v", err)
	}
	must(t, Backup(t.Context(), s.node.Conn, "", &w))
	return w.Bytes(), id
}

// checkRestored checks that a client that comes back with the id of event half gets the others, and then new ones, in order.
// The client comes back if it is sent away, which happens when the stream has no leader.
func checkRestored(t *testing.T, s *site, half int, id string, more ...string) {
	t.Helper()
	var want []string
	for i := half + 1; i < restored; i++ {
		want = append(want, fmt.Sprint(i))
	}
	want = append(want, more...)
	for len(want) > 0 {
		r, err := openSSE(s.url, "topic=a", id)
		if err != nil {
			await.Pause(20 * time.Millisecond)
			continue
		}
		for len(want) > 0 {
			m, err := r.next()
			if err != nil {
				break
			}
			if m.Data != want[0] || m.Gap != "" {
				t.Fatalf("got %+v after %s, want %s", m, id, want[0])
			}
			id, want = m.ID, want[1:]
		}
		r.close()
	}
}

// restored is the number of events of topic a in a backup.
const restored = 1500

// A node whose stream was restored from a backup of another has its events, with their ids.
func TestBackup(t *testing.T) {
	const half = 700
	backup, id := backupOf(t, half)
	if len(backup) < 3*(128<<10) {
		t.Fatalf("the backup has %d bytes", len(backup))
	}
	damaged := bytes.Clone(backup)
	damaged[len(damaged)-100] ^= 1
	node := newNode(t, NodeConfig{Store: t.TempDir()})
	for i := 0; i < bytes.IndexByte(backup, '\n'); i += 7 { // JetStream must not be asked to restore that
		bad := bytes.Clone(backup)
		bad[i] ^= 1
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := New(ctx, Config{Conn: node.Conn, Logger: quiet, Stream: StreamConfig{Restore: bytes.NewReader(bad)}})
		cancel()
		if !errors.Is(err, ErrBackup) {
			t.Fatalf("byte %d is damaged: %v", i, err)
		}
	}
	for name, bad := range map[string][]byte{
		"empty": nil, "no backup": []byte("{}\n"), "half": backup[:len(backup)/2], "without its end": backup[:len(backup)-1],
		"cut where a chunk ends": backup[:bytes.IndexByte(backup, '\n')+1+2*(128<<10)],
		"damaged":                damaged,
	} {
		stream := StreamConfig{Restore: bytes.NewReader(bad)}
		_, err := New(t.Context(), Config{Conn: node.Conn, Logger: quiet, Stream: stream})
		if !errors.Is(err, ErrBackup) {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := StreamConfig{Name: "OTHER", Restore: bytes.NewReader(backup)}
	if _, err := New(t.Context(), Config{Conn: node.Conn, Logger: quiet, Stream: other}); !errors.Is(err, ErrBackup) {
		t.Errorf("of another stream: %v", err)
	}
	s := newSiteOn(t, node, Config{Stream: StreamConfig{Restore: bytes.NewReader(backup)}})
	s.publish("a", "new")
	checkRestored(t, s, half, id, "new")

	var log bytes.Buffer
	again := Config{Conn: node.Conn, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Stream: StreamConfig{Restore: bytes.NewReader(backup)}}
	g, err := New(t.Context(), again)
	must(t, err)
	must(t, g.Shutdown(t.Context()))
	if !strings.Contains(log.String(), "not restored") {
		t.Errorf("nothing says that the stream existed: %q", log.String())
	}
}

// A stream that was made from a backup has events with the sequences of those that the other stream
// has had after the backup. A client that has seen those, or has yet to, is told which are missing,
// and gets the new ones.
func TestOldBackup(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	old := s.hub.Epoch
	for i := range 5 {
		s.publish("a", fmt.Sprint(i+1))
	}
	var backup bytes.Buffer
	must(t, Backup(t.Context(), s.node.Conn, "", &backup))
	for range 3 { // acknowledged, and not in the backup
		s.publish("a", "lost")
	}
	c := StreamConfig{Restore: bytes.NewReader(backup.Bytes())}
	restored := newSite(t, t.TempDir(), Config{Stream: c})
	epoch := restored.hub.Epoch
	if epoch == old {
		t.Fatal("the epoch is the same")
	}
	for i := range 5 {
		restored.publish("a", fmt.Sprint("new ", i+1))
	}
	check := func(s *site, seen uint64, missed ...event.Miss) {
		t.Helper()
		after := event.Position{Epoch: old, Seq: seen}.String()
		sse, err := openSSE(s.url, "topic=a", after)
		must(t, err)
		socket, err := openWS(s.url, "topic=a&after="+after)
		must(t, err)
		poll := &pollReader{url: s.url, topics: []string{"a"}, after: []string{after}}
		for name, r := range map[string]reader{"sse": sse, "socket": socket, "poll": poll} {
			m := message{Gap: socket.first.Gap, Missed: socket.first.Missed}
			if name != "socket" {
				m, err = r.next()
				must(t, err)
			}
			if m.Gap != event.GapEpoch || !slices.Equal(m.Missed, missed) {
				t.Errorf("%s after %s: got %+v, want %+v", name, after, m, missed)
			}
			for i := min(seen, 5); i < 10; i++ {
				want := message{ID: event.Position{Epoch: s.hub.Epoch, Seq: i + 1}.String(), Data: fmt.Sprint(i + 1)}
				if i >= 5 {
					want.Data = fmt.Sprint("new ", i-4)
				}
				expect(t, r, want)
			}
			r.close()
		}
	}
	id := func(epoch string, seq uint64) string { return event.Position{Epoch: epoch, Seq: seq}.String() }
	check(restored, 8, event.Miss{Topic: "a", After: id(old, 8), Last: id(epoch, 5)})
	check(restored, 3, event.Miss{Topic: "a", After: id(old, 5), Last: id(epoch, 5)})

	// The same once more, with a backup of the stream that was made from one.
	backup.Reset()
	must(t, Backup(t.Context(), restored.node.Conn, "", &backup))
	restored.publish("a", "lost, too")
	c = StreamConfig{Restore: bytes.NewReader(backup.Bytes())}
	again := newSite(t, t.TempDir(), Config{Stream: c})
	latest := again.hub.Epoch
	for _, seen := range []uint64{8, 3} {
		check(again, seen, event.Miss{Topic: "a", After: id(old, max(seen, 5)), Last: id(latest, 5)},
			event.Miss{Topic: "a", After: id(epoch, 10), Last: id(latest, 10)})
	}
}

// A node that ends while it restores a backup leaves a stream that takes no event. The next one
// goes on.
func TestRestoreInterrupted(t *testing.T) {
	const half = 700
	backup, id := backupOf(t, half)
	node := newNode(t, NodeConfig{Store: t.TempDir()})
	c := StreamConfig{Name: stream.DefaultName, Replicas: 1, Restore: bytes.NewReader(backup)}
	must(t, stream.Restore(t.Context(), node.Conn, stream.Config(c)))
	if _, err := node.Conn.Request(event.StoredPrefix+"a", nil, time.Minute); err == nil {
		t.Error("an event was stored")
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if g, err := New(short, Config{Conn: node.Conn, Logger: quiet}); err == nil {
		g.Shutdown(t.Context())
		t.Error("a gateway uses the stream")
	}
	s := newSiteOn(t, node, Config{Stream: c})
	s.publish("a", "new")
	checkRestored(t, s, half, id, "new")
}

// A stream that exists is changed to what is configured, and otherwise stays as it is. What is not
// possible is refused, by name.
func TestStreamChanges(t *testing.T) {
	node := newNode(t, NodeConfig{Store: t.TempDir()})
	three := Config{Conn: node.Conn, Stream: StreamConfig{Replicas: 3}, Logger: quiet}
	if _, err := New(t.Context(), three); !errors.Is(err, ErrStream) {
		t.Errorf("three replicas on one node: %v", err)
	}
	long := Config{Conn: node.Conn, Stream: StreamConfig{Name: "LONG", Window: 25 * time.Hour}, Logger: quiet}
	if _, err := New(t.Context(), long); !errors.Is(err, ErrStream) || !strings.Contains(err.Error(), "Window 25h") {
		t.Errorf("a window that is longer than the retention: %v", err)
	}
	long.Stream.MaxAge = 24 * time.Hour
	if _, err := New(t.Context(), long); !errors.Is(err, socknotify.ErrInvalid) || !strings.Contains(err.Error(), "Window") {
		t.Errorf("a window that is longer than the retention, both given: %v", err)
	}
	js := must1(jetstream.New(node.Conn))
	for _, c := range []struct {
		set          StreamConfig
		age, window  time.Duration
		bytes        int64
		said, failed string
	}{
		{set: StreamConfig{MaxBytes: 8 << 20},
			age: 24 * time.Hour, window: 2 * time.Minute, bytes: 8 << 20},
		{age: 24 * time.Hour, window: 2 * time.Minute, bytes: 8 << 20},
		{set: StreamConfig{MaxBytes: 4 << 20, MaxAge: time.Hour, Window: time.Minute},
			age: time.Hour, window: time.Minute, bytes: 4 << 20,
			said: "MaxBytes from 8388608 to 4194304"},
		{set: StreamConfig{MaxAge: 30 * time.Second},
			age: 30 * time.Second, window: 30 * time.Second, bytes: 4 << 20,
			said: "Window from 1m"},
		{set: StreamConfig{Replicas: 3},
			age: 30 * time.Second, window: 30 * time.Second, bytes: 4 << 20,
			failed: "Replicas from 1 to 3"},
		{set: StreamConfig{Window: time.Hour},
			age: 30 * time.Second, window: 30 * time.Second, bytes: 4 << 20,
			failed: "Window from 30s to 1h"},
	} {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		g, err := New(t.Context(), Config{Conn: node.Conn, Stream: c.set, Logger: logger})
		if err == nil {
			must(t, g.Shutdown(t.Context()))
		}
		if c.failed == "" {
			must(t, err)
		} else if !errors.Is(err, ErrStream) || !strings.Contains(err.Error(), c.failed) {
			t.Errorf("%+v: %v", c.set, err)
		}
		now := must1(js.Stream(t.Context(), stream.DefaultName)).CachedInfo().Config
		if now.MaxAge != c.age || now.Duplicates != c.window || now.MaxBytes != c.bytes {
			t.Errorf("%+v: %v, %v, %d", c.set, now.MaxAge, now.Duplicates, now.MaxBytes)
		}
		if changed := strings.Contains(log.String(), "was changed"); changed != (c.said != "") ||
			!strings.Contains(log.String(), c.said) {
			t.Errorf("%+v: logged %q", c.set, log.String())
		}
	}
}

// newCluster starts three nodes in this process.
func newCluster(t *testing.T) (nodes []*Node) {
	addrs := freeport.Addrs(t, 3)
	for i, a := range addrs {
		c := NodeConfig{Name: fmt.Sprint("n", i), Store: t.TempDir(), Cluster: a, Routes: addrs}
		nodes = append(nodes, newNode(t, c))
	}
	return nodes
}

// A cluster has the events of a single node's backup, on three replicas: it goes on when one member ends.
func TestBackupIntoCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	const half = 1000
	backup, id := backupOf(t, half)
	nodes := newCluster(t)
	sites := make([]*site, 3)
	var starting sync.WaitGroup
	for i, node := range nodes {
		c := StreamConfig{Replicas: 3, Await: i != 1}
		if i == 1 {
			c.Restore = bytes.NewReader(backup)
		}
		starting.Go(func() {
			sites[i] = newSiteOn(t, node, Config{Stream: c})
		})
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	sites[2].publish("a", "first")
	checkRestored(t, sites[0], half, id, "first")
	until(t, "all replicas have all events", func() bool {
		var info struct {
			Cluster struct {
				Replicas []struct{ Current bool }
			}
		}
		must(t, stream.CallAPI(t.Context(), nodes[0].Conn, "$JS.API.STREAM.INFO."+stream.DefaultName, nil, &info))
		r := info.Cluster.Replicas
		return len(r) == 2 && r[0].Current && r[1].Current
	})
	nodes[1].Close()
	until(t, "publishing goes on", func() bool {
		_, err := sites[0].Publish(t.Context(), "a", []byte("second"), "key")
		return err == nil
	})
	checkRestored(t, sites[2], half, id, "first", "second")
}

// The folder of a single node is refused by a cluster, whose servers would delete its events, and a member's folder by a
// single node.
func TestWrongFolder(t *testing.T) {
	single, member := t.TempDir(), t.TempDir()
	s := newSite(t, single, Config{})
	s.publish("a", "x")
	address := freeAddr(t)
	clustered := NodeConfig{Name: "a", Store: member, Cluster: address, Routes: []string{address}, Logger: quiet}
	newNode(t, clustered).Close()
	s.node.Close()
	clustered.Store = single
	if _, err := Start(clustered); !errors.Is(err, ErrStore) {
		t.Errorf("a single node's folder: %v", err)
	}
	if _, err := Start(NodeConfig{Name: "a", Store: member, Logger: quiet}); !errors.Is(err, ErrStore) {
		t.Errorf("a member's folder: %v", err)
	}
	if _, err := os.Stat(filepath.Join(single, "jetstream", "$G", "streams", stream.DefaultName)); err != nil {
		t.Error(err)
	}
}
