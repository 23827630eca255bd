package socknotify_test

import (
	"fmt"
	"testing"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// Connections taken from a listener, with so many accepts outstanding, and by accepting until would-block
// on each notification. Clients connect 64 at a time; their cost is in the figures of both ways.
func BenchmarkAccept(b *testing.B) {
	const burst = 64
	for _, n := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("outstanding=%d", n), func(b *testing.B) {
			eachBackend(b, func(b *testing.B, p *Port[int]) {
				l := benchListener(b)
				if err := p.Accept(l, 0, n); err != nil {
					b.Fatal(err)
				}
				out := make([]Notification[int], burst)
				benchAccepts(b, l, burst, func() (took int) {
					k, err := p.Process(nil, out, -1)
					if err != nil {
						b.Fatal(err)
					}
					for i := range k {
						s, err := out[i].Accepted()
						if err != nil {
							b.Fatal(err)
						}
						s.SetLinger(0)
						s.Close()
					}
					return k
				})
			})
		})
	}
	b.Run("on-notification", func(b *testing.B) {
		eachBackend(b, func(b *testing.B, p *Port[int]) {
			l := benchListener(b)
			regs := []Registration[int]{Enable(l, 0, EventIn, oneShot)}
			var out [1]Notification[int]
			var s sock.Socket
			benchAccepts(b, l, burst, func() (took int) {
				if _, err := p.Process(regs, out[:], -1); err != nil {
					b.Fatal(err)
				}
				must(b, regs)
				for l.AcceptInto(&s) == nil {
					took++
					s.SetLinger(0)
					s.Close()
				}
				return took
			})
		})
	})
}

func benchListener(b *testing.B) *sock.Socket {
	b.Helper()
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return l
}

// benchAccepts connects in bursts and has take accept until it has taken each.
func benchAccepts(b *testing.B, l *sock.Socket, burst int, take func() int) {
	b.Helper()
	clients := make([]*sock.Socket, burst)
	at := l.LocalAddr()
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += burst {
		for i := range clients {
			c, err := sock.New(sock.TCP4)
			if err != nil {
				b.Fatal(err)
			}
			if err := c.Connect(at); err != nil && err != sock.ErrWouldBlock {
				b.Fatal(err)
			}
			clients[i] = c
		}
		for left := burst; left > 0; {
			left -= take()
		}
		for _, c := range clients {
			c.Close()
		}
	}
}
