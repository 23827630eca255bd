package parking

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/socknotify/socknotify/internal/serving/nowait"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"
)

// A parked connection whose bytes have arrived when it is evicted is not closed before they are read: it would be reset.
func TestEvictReadable(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no way to ask a socket of package net")
	}
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, text := range []string{"hello", ""} {
			l := newLot(t, Config{Backend: backend})
			server, client := conntest.Pair(t, "tcp")
			f, outcomes := conntest.Reader()
			check.OK(t, l.Park(server, f))
			pc := l.findConn(server)
			pc.mu.Lock() // no worker makes the call
			if text != "" {
				conntest.Send(t, client, text)
				raw, err := server.(syscall.Conn).SyscallConn()
				check.OK(t, err)
				await.Until(t, "the bytes have arrived", nowait.Of(raw).Readable)
			}
			l.evictLocked(pc)
			pc.mu.Unlock()
			if o := await.Value(t, outcomes); o.Text != text || (o.Err == nil) != (text != "") {
				t.Errorf("%+v, want %q", o, text)
			}
		}
	})
}
