package afd

import (
	"testing"
	"time"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// The states of a socket before it is closed. send makes it readable.
var lives = map[string]func(t *testing.T, p *Poller, a socket, send func()){
	"idle":       func(*testing.T, *Poller, socket, func()) {},
	"suppressed": func(t *testing.T, p *Poller, a socket, _ func()) { apply(t, p, backend.Suppress, a, 1, 0) },
	"found": func(t *testing.T, p *Poller, a socket, send func()) {
		send()
		eventually(t, "the byte", func() bool { return p.PollOne(uintptr(a))&backend.In != 0 })
	},
	"held": func(t *testing.T, p *Poller, a socket, send func()) {
		send()
		park(t, p, time.Time{}, sleepOn)
	},
	"reported": func(t *testing.T, p *Poller, a socket, send func()) {
		send()
		expect(t, p, 1, backend.In)
	},
	"cancelled": func(t *testing.T, p *Poller, a socket, _ func()) { apply(t, p, backend.Set, a, 1, everything) },
}

// old is the first socket of a number. fresh opens the second one with the number, which must be writable.
type numbers map[string]func(t *testing.T) (old socket, send, fresh func())

var successions = numbers{
	"stream, datagrams": func(t *testing.T) (socket, func(), func()) {
		a, b := pair(t)
		return a, func() { write(t, b) }, func() { reuse(t, a, windows.SOCK_DGRAM) }
	},
	// Only the witness distinguishes these.
	"datagrams, the same address": func(t *testing.T) (socket, func(), func()) {
		a, addr := bound(t, windows.SOCK_DGRAM)
		send := func() {
			if err := windows.Sendto(a, []byte("x"), 0, &addr); err != nil {
				t.Fatal(err)
			}
		}
		return a, send, func() {
			reuse(t, a, windows.SOCK_DGRAM)
			// Wine frees the address only after the threads that started polls of the old socket have run.
			eventually(t, "the address is free", func() bool { return windows.Bind(a, &addr) == nil })
		}
	},
}

func TestClosed(t *testing.T) {
	for name, live := range lives {
		for _, action := range []backend.Action{backend.Set, backend.Suppress, backend.Delete, backend.Add} {
			t.Run(name, func(t *testing.T) {
				p := open(t)
				a, b := pair(t)
				apply(t, p, backend.Add, a, 1, in)
				live(t, p, a, func() { write(t, b) })
				windows.Closesocket(a)
				if got, err := change(p, action, a, 2, in); got != backend.Bad || err != windows.WSAENOTSOCK {
					t.Fatalf("action %d: status %d, %v; want Bad", action, got, err)
				}
				none(t, p)
			})
		}
	}
}

// Closing makes no report, with or without interest in the end.
func TestCloseMakesNoReport(t *testing.T) {
	p := open(t)
	for range 40 {
		a, _ := pair(t)
		apply(t, p, backend.Add, a, 1, in)
		windows.Closesocket(a)
	}
	none(t, p)
	if len(p.entries) != 0 {
		t.Errorf("%d entries are left", len(p.entries))
	}
	// It does not keep Park from blocking either.
	a, b := pair(t)
	apply(t, p, backend.Add, a, 7, in)
	c, _ := pair(t)
	apply(t, p, backend.Add, c, 8, in)
	park(t, p, time.Time{}, func() bool {
		go func() {
			windows.Closesocket(c)
			write(t, b)
		}()
		return false
	})
	expect(t, p, 7, backend.In)
}

func onReuse(t *testing.T, f func(t *testing.T, p *Poller, a socket)) {
	for how, live := range lives {
		for what, number := range successions {
			t.Run(how+"/"+what, func(t *testing.T) {
				p := open(t)
				a, send, fresh := number(t)
				apply(t, p, backend.Add, a, 1, in)
				live(t, p, a, send)
				fresh()
				f(t, p, a)
				none(t, p)
			})
		}
	}
}

// Set, Suppress and Delete are Absent if the number names another socket, in every state of the first socket.
func TestReusedNumberIsAbsent(t *testing.T) {
	for _, action := range []backend.Action{backend.Set, backend.Suppress, backend.Delete} {
		onReuse(t, func(t *testing.T, p *Poller, a socket) {
			if got, err := change(p, action, a, 2, in); got != backend.Absent || err == nil {
				t.Fatalf("action %d: status %d, %v; want Absent", action, got, err)
			}
			none(t, p)
			apply(t, p, backend.Add, a, 3, backend.Out)
			expect(t, p, 3, backend.Out)
		})
	}
}

func TestHasOfReusedNumber(t *testing.T) {
	onReuse(t, func(t *testing.T, p *Poller, a socket) {
		if has, err := p.Has(uintptr(a)); has || err != nil {
			t.Fatalf("Has = %v, %v", has, err)
		}
	})
}

// The number is added again before the Poller has noticed that its socket was closed.
func TestReusedNumberIsAdded(t *testing.T) {
	onReuse(t, func(t *testing.T, p *Poller, a socket) {
		apply(t, p, backend.Add, a, 2, backend.Out)
		expect(t, p, 2, backend.Out)
		apply(t, p, backend.Set, a, 3, in)
		none(t, p)
	})
}

// While a duplicate keeps the socket open, its number is used by another one. The two have different
// addresses.
func TestReusedUnderDuplicate(t *testing.T) {
	for _, action := range []backend.Action{backend.Set, backend.Suppress, backend.Delete, backend.Add} {
		p := open(t)
		a, b := pair(t)
		alive := duplicate(t, a)
		apply(t, p, backend.Add, a, 1, in)
		reuse(t, a, windows.SOCK_STREAM)
		if has, err := p.Has(uintptr(a)); has || err != nil {
			t.Fatalf("Has = %v, %v", has, err)
		}
		want := backend.Absent
		if action == backend.Add {
			want = backend.Done
		}
		if got, err := change(p, action, a, 2, in); got != want {
			t.Fatalf("action %d: status %d, %v; want %d", action, got, err, want)
		}
		write(t, b)
		none(t, p)
		windows.Closesocket(alive)
		none(t, p)
	}
}

// A number that was closed while a duplicate is open is no longer watched after the next operation.
func TestClosedUnderDuplicate(t *testing.T) {
	for _, action := range []backend.Action{backend.Set, backend.Suppress, backend.Delete} {
		p := open(t)
		a, b := pair(t)
		defer windows.Closesocket(duplicate(t, a))
		apply(t, p, backend.Add, a, 1, in)
		windows.Closesocket(a)
		if got, err := change(p, action, a, 2, in); got != backend.Bad {
			t.Fatalf("action %d: status %d, %v; want Bad", action, got, err)
		}
		write(t, b)
		none(t, p)
	}
}

// A number is used again many times while reports of its earlier sockets are still queued.
func TestNumberReusedOften(t *testing.T) {
	p := open(t)
	for life := range uint64(200) {
		a, addr := bound(t, windows.SOCK_DGRAM)
		loud := life%2 == 0
		apply(t, p, backend.Add, a, life, in)
		if loud {
			if err := windows.Sendto(a, []byte("x"), 0, &addr); err != nil {
				t.Fatal(err)
			}
		}
		switch {
		case life%3 == 0 && loud:
			expect(t, p, life, backend.In)
		case life%3 < 2:
			for _, r := range harvest(p) {
				if r.Token != life || !loud {
					t.Fatalf("life %d: reports %+v", life, r)
				}
			}
		}
		if life%4 < 2 {
			apply(t, p, backend.Delete, a, 0, 0)
		}
		windows.Closesocket(a)
	}
	none(t, p)
	if len(p.groups) > 1 {
		t.Errorf("%d groups; want one", len(p.groups))
	}
}
