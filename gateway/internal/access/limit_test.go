package access

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A bucket has its burst, is filled at its rate, and is no fuller for a client that was forgotten.
func TestLimiter(t *testing.T) {
	at := time.Now()
	now := func() time.Time { return at }
	l := newLimiter(Rate{PerSecond: 10, Burst: 3}, now)
	take := func(client string, want time.Duration) {
		t.Helper()
		if got := l.Take(client); got != want {
			t.Errorf("%s waits for %v, want %v", client, got, want)
		}
	}
	for range 3 {
		take("a", 0)
	}
	take("a", 100*time.Millisecond)
	take("b", 0)
	at = at.Add(60 * time.Millisecond)
	take("a", 40*time.Millisecond)
	at = at.Add(40 * time.Millisecond)
	take("a", 0)
	take("a", 100*time.Millisecond)
	for i := range 2 * minPrune { // so that clients are forgotten
		take(fmt.Sprint("other", i), 0)
	}
	take("a", 100*time.Millisecond)
	at = at.Add(time.Hour)
	for range 3 {
		take("a", 0)
	}
	take("a", 100*time.Millisecond)
	for i := range 4 * minPrune {
		at = at.Add(time.Second)
		take(fmt.Sprint("late", i), 0)
	}
	if n := len(l.full); n > 2*minPrune {
		t.Errorf("%d clients are known", n)
	}
	for _, r := range []Rate{{PerSecond: 1, Burst: math.MaxInt}, {PerSecond: math.MaxInt},
		{PerSecond: math.MaxInt, Burst: math.MaxInt}, {PerSecond: 7, Burst: 1 << 40}} {
		l := newLimiter(r, now)
		for range 100 {
			if wait := l.Take("a"); wait != 0 {
				t.Fatalf("%+v: a client waits for %v", r, wait)
			}
		}
		at = at.Add(time.Hour)
	}
	if newLimiter(Rate{}, now) != nil || newLimiter(Rate{PerSecond: -1}, now) != nil ||
		(*limiter)(nil).Take("a") != 0 {
		t.Error("no rate is a limit")
	}
}

// A client is known by its subject, or else by its address.
func TestClientKey(t *testing.T) {
	for _, c := range [][3]string{
		{"alice", "192.0.2.1:1", "subject alice"},
		{"", "192.0.2.1:1", "192.0.2.1"},
		{"", "[::ffff:192.0.2.1]:2", "192.0.2.1"},
		{"", "[2001:db8:1:2:3::4]:3", "2001:db8:1:2::/64"},
		{"", "[fe80::1%eth0]:3", "fe80::/64"},
		{"", "@", "@"},
	} {
		if got := clientKey(c[0], c[1]); got != c[2] {
			t.Errorf("%v: %q", c, got)
		}
	}
}

// A lockedBuffer is a log that a timer writes to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Of a message that clients cause more often, ten lines are written in a second, and then how many
// there were besides.
func TestLineLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		l := &Log{name: "push", logger: slog.New(slog.NewTextHandler(&out, nil))}
		lines := func(want int, last string) {
			t.Helper()
			synctest.Wait()
			all := strings.Split(strings.TrimSpace(out.String()), "\n")
			if len(all) != want || !strings.Contains(all[want-1], last) {
				t.Errorf("want %d lines, and %q in the last one: %s", want, last, out.String())
			}
		}
		for range 25 {
			l.Log(levelLimit, "refused", "limit", "rate")
			l.Log(levelBadPeer, "rejected") // is not enabled
		}
		l.Log(levelLimit, "other")
		lines(11, "other")
		time.Sleep(linePeriod)
		lines(12, `level=WARN msg="gateway: refused" suppressed=15 name=push`)
		for range 12 {
			l.Log(levelLimit, "refused")
		}
		l.Flush()
		lines(23, "suppressed=2")
		time.Sleep(2 * linePeriod)
		lines(23, "suppressed=2")
	})
}
