package socknotify_test

import (
	"testing"

	. "github.com/socknotify/socknotify"
)

// A byte received and sent back, both by operations; the peer's send and receive are included.
func BenchmarkOperationEcho(b *testing.B) {
	eachBackend(b, func(b *testing.B, p *Port[int]) {
		s, peer := pair(b)
		var recv, send Overlapped[int]
		var out [4]Notification[int]
		buf, x := make([]byte, 64), []byte("x")
		for b.Loop() {
			p.Recv(s, 1, buf, &recv)
			peer.Send(x)
			p.Wait(out[:], -1)
			p.Send(s, 1, buf[:1], &send)
			p.Wait(out[:], -1)
			if n, err := peer.Recv(x); n != 1 {
				b.Fatal(err)
			}
		}
	})
}
