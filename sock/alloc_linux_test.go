package sock_test

import (
	"testing"
	"time"

	testawait "github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/sock"
)

// wantNoAllocs verifies that f does not allocate. It works with the race detector too: sync.Pool then drops a
// quarter of the values, which is less than one allocation per run, and AllocsPerRun rounds down.
func wantNoAllocs(t *testing.T, what string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(100, f); n != 0 {
		t.Errorf("%s: %v allocations", what, n)
	}
}

// recvEventually repeats a receive until want bytes or messages have been received.
func recvEventually(t *testing.T, want int, f func() (int, error)) {
	for end := time.Now().Add(timeout); want > 0; {
		n, err := f()
		if want -= n; err != nil && err != sock.ErrWouldBlock || time.Now().After(end) {
			t.Fatalf("%d are missing, %v", want, err)
		}
	}
}

func TestStreamAllocs(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		a, b := k.pair(t)
		data, buf := []byte("data"), make([]byte, 64)
		bufs := [][]byte{data[:1], nil, data[1:]}
		recv := func() (int, error) { return b.Recv(buf) }
		wantNoAllocs(t, "Send and Recv", func() {
			if n, err := a.Send(data); n != len(data) || err != nil {
				t.Fatal(n, err)
			}
			recvEventually(t, len(data), recv)
		})
		wantNoAllocs(t, "SendV", func() {
			if n, err := a.SendV(bufs); n != len(data) || err != nil {
				t.Fatal(n, err)
			}
			recvEventually(t, len(data), recv)
		})
		wantNoAllocs(t, "Recv that would block", func() {
			if _, err := b.Recv(buf); err != sock.ErrWouldBlock {
				t.Fatal(err)
			}
		})
	})
}

func TestSendWouldBlockAllocs(t *testing.T) {
	for _, k := range kinds {
		if k.name != "tcp4" && k.name != "unix" && k.name != "unixgram" { // UDP drops datagrams instead of blocking
			continue
		}
		a, b := k.pair(t)
		b.SetReadBuffer(1)
		a.SetWriteBuffer(1)
		data := make([]byte, 2000)
		bufs, msgs := [][]byte{data}, []sock.Message{{Buf: data}}
		for quiet := 0; quiet < 3; { // the kernel may still make room after the first ErrWouldBlock
			_, err := a.Send(data)
			if err != nil && err != sock.ErrWouldBlock {
				t.Fatal(err)
			}
			if quiet++; err == nil {
				quiet = 0
			} else {
				testawait.Pause(time.Millisecond)
			}
		}
		for what, f := range map[string]func() error{
			"Send":      func() error { return second(a.Send(data)) },
			"SendV":     func() error { return second(a.SendV(bufs)) },
			"SendBatch": func() error { return second(a.SendBatch(msgs)) },
		} {
			blocked := 0
			wantNoAllocs(t, k.name+" "+what, func() {
				if f() == sock.ErrWouldBlock {
					blocked++
				}
			})
			if blocked == 0 {
				t.Errorf("%s %s: never returned ErrWouldBlock", k.name, what)
			}
		}
	}
}

func TestDatagramAllocs(t *testing.T) {
	forEachUDP(t, func(t *testing.T, a, b *sock.Socket) {
		to, from := b.LocalAddr(), a.LocalAddr()
		data, buf := []byte("data"), make([]byte, 64)
		wantNoAllocs(t, "SendTo and RecvFrom", func() {
			if err := a.SendTo(data, to); err != nil {
				t.Fatal(err)
			}
			recvEventually(t, len(data), func() (int, error) {
				n, who, err := b.RecvFrom(buf)
				if err == nil && who != from {
					t.Fatal(who)
				}
				return n, err
			})
		})
		sent, got := messages(20, to), buffers(20, 64)
		recv := func() (int, error) { return b.RecvBatch(got) }
		wantNoAllocs(t, "SendBatch and RecvBatch", func() {
			if n, err := sendBatch(a, sent); n != len(sent) || err != nil {
				t.Fatal(n, err)
			}
			recvEventually(t, len(sent), recv)
		})
		if err := b.SetPacketInfo(true); err != nil {
			t.Fatal(err)
		}
		for i := range sent {
			sent[i].Local = from.Addr()
		}
		wantNoAllocs(t, "SendBatch and RecvBatch with addresses", func() {
			if n, err := sendBatch(a, sent); n != len(sent) || err != nil {
				t.Fatal(n, err)
			}
			recvEventually(t, len(sent), recv)
			if got[0].Local != to.Addr() {
				t.Fatal(got[0].Local)
			}
		})
		wantNoAllocs(t, "RecvFrom that would block", func() {
			if _, _, err := b.RecvFrom(buf); err != sock.ErrWouldBlock {
				t.Fatal(err)
			}
		})
		wantNoAllocs(t, "RecvBatch that would block", func() {
			if _, err := b.RecvBatch(got); err != sock.ErrWouldBlock {
				t.Fatal(err)
			}
		})
	})
}

func TestAcceptIntoAllocs(t *testing.T) {
	forEachListener(t, func(t *testing.T, l *sock.Socket, dial func() *sock.Socket) {
		const runs = 101 // AllocsPerRun makes one more than it counts
		for range runs {
			waitPoll(t, dial(), out)
		}
		var s sock.Socket
		accepted := 0
		wantNoAllocs(t, "AcceptInto and Close", func() {
			for end := time.Now().Add(timeout); ; {
				err := l.AcceptInto(&s)
				if err == nil {
					break
				}
				if err != sock.ErrWouldBlock || time.Now().After(end) {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			accepted++
		})
		if accepted != runs {
			t.Errorf("%d connections", accepted)
		}
		wantNoAllocs(t, "AcceptInto that would block", func() {
			if err := l.AcceptInto(&s); err != sock.ErrWouldBlock {
				t.Fatal(err)
			}
		})
	})
}
