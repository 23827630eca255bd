package sock_test

import (
	"testing"
	"time"

	"github.com/socknotify/socknotify/sock"
)

// allocatesNothing is for the race detector as well. sync.Pool forgets a quarter of what it is given then,
// which is less than one allocation in a run, and AllocsPerRun leaves fractions out.
func allocatesNothing(t *testing.T, what string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(100, f); n != 0 {
		t.Errorf("%s: %v allocations", what, n)
	}
}

// soonOf repeats a receive until what was sent is there, and counts what it gets.
func soonOf(t *testing.T, want int, f func() (int, error)) {
	for end := time.Now().Add(soon); want > 0; {
		n, err := f()
		if want -= n; err != nil && err != sock.ErrWouldBlock || time.Now().After(end) {
			t.Fatalf("%d less than it should be, %v", want, err)
		}
	}
}

func TestAllocsOfStreamsAndPeers(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		a, b := k.pair(t)
		data, buf := []byte("data"), make([]byte, 64)
		bufs := [][]byte{data[:1], nil, data[1:]}
		recv := func() (int, error) { return b.Recv(buf) }
		allocatesNothing(t, "Send and Recv", func() {
			if n, err := a.Send(data); n != len(data) || err != nil {
				t.Fatal(n, err)
			}
			soonOf(t, len(data), recv)
		})
		allocatesNothing(t, "SendV", func() {
			if n, err := a.SendV(bufs); n != len(data) || err != nil {
				t.Fatal(n, err)
			}
			soonOf(t, len(data), recv)
		})
		allocatesNothing(t, "Recv that would block", func() {
			if _, err := b.Recv(buf); err != sock.ErrWouldBlock {
				t.Fatal(err)
			}
		})
	})
}

func TestAllocsOfSendsThatWouldBlock(t *testing.T) {
	for _, k := range kinds {
		if k.name != "tcp4" && k.name != "unix" && k.name != "unixgram" { // UDP drops what nobody receives
			continue
		}
		a, b := k.pair(t)
		b.SetReadBuffer(1)
		a.SetWriteBuffer(1)
		data := make([]byte, 2000)
		bufs, msgs := [][]byte{data}, []sock.Message{{Buf: data}}
		for quiet := 0; quiet < 3; { // the peer's side may have made room meanwhile
			_, err := a.Send(data)
			if err != nil && err != sock.ErrWouldBlock {
				t.Fatal(err)
			}
			if quiet++; err == nil {
				quiet = 0
			} else {
				time.Sleep(time.Millisecond)
			}
		}
		for what, f := range map[string]func() error{
			"Send":      func() error { return second(a.Send(data)) },
			"SendV":     func() error { return second(a.SendV(bufs)) },
			"SendBatch": func() error { return second(a.SendBatch(msgs)) },
		} {
			blocked := 0
			allocatesNothing(t, k.name+" "+what, func() {
				if f() == sock.ErrWouldBlock {
					blocked++
				}
			})
			if blocked == 0 {
				t.Errorf("%s %s: never would have blocked", k.name, what)
			}
		}
	}
}

func TestAllocsOfDatagrams(t *testing.T) {
	onUDP(t, func(t *testing.T, a, b *sock.Socket) {
		to, from := b.LocalAddr(), a.LocalAddr()
		data, buf := []byte("data"), make([]byte, 64)
		allocatesNothing(t, "SendTo and RecvFrom", func() {
			if err := a.SendTo(data, to); err != nil {
				t.Fatal(err)
			}
			soonOf(t, len(data), func() (int, error) {
				n, who, err := b.RecvFrom(buf)
				if err == nil && who != from {
					t.Fatal(who)
				}
				return n, err
			})
		})
		sent, got := messages(20, to), room(20, 64)
		recv := func() (int, error) { return b.RecvBatch(got) }
		allocatesNothing(t, "SendBatch and RecvBatch", func() {
			if n, err := a.SendBatch(sent); n != len(sent) || err != nil {
				t.Fatal(n, err)
			}
			soonOf(t, len(sent), recv)
		})
		allocatesNothing(t, "RecvFrom that would block", func() {
			if _, _, err := b.RecvFrom(buf); err != sock.ErrWouldBlock {
				t.Fatal(err)
			}
		})
		allocatesNothing(t, "RecvBatch that would block", func() {
			if _, err := b.RecvBatch(got); err != sock.ErrWouldBlock {
				t.Fatal(err)
			}
		})
	})
}

func TestAllocsOfAcceptInto(t *testing.T) {
	accepting(t, func(t *testing.T, l *sock.Socket, dial func() *sock.Socket) {
		const runs = 101 // AllocsPerRun makes one more than it counts
		for range runs {
			settle(t, dial(), out)
		}
		var s sock.Socket
		accepted := 0
		allocatesNothing(t, "AcceptInto and Close", func() {
			for end := time.Now().Add(soon); ; {
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
		allocatesNothing(t, "AcceptInto that would block", func() {
			if err := l.AcceptInto(&s); err != sock.ErrWouldBlock {
				t.Fatal(err)
			}
		})
	})
}
