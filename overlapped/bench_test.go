package overlapped

import (
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/backend/system"
)

// A byte received and sent back, both by operations; the peer's send and receive are included.
func BenchmarkOperationEcho(b *testing.B) {
	for _, backend := range system.List() {
		b.Run(backend.Name, func(b *testing.B) {
			p, err := socknotify.New[int](socknotify.WithBackend(backend.Name))
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			s, peer := newPair(b)
			var receive, answer Op[int]
			var out [4]socknotify.Notification[int]
			buf, x := make([]byte, 64), []byte("x")
			b.ReportAllocs()
			for b.Loop() {
				Recv(p, s, 1, buf, &receive)
				peer.Send(x)
				p.Process(nil, out[:], -1)
				Send(p, s, 1, buf[:1], &answer)
				p.Process(nil, out[:], -1)
				if n, err := peer.Recv(x); n != 1 {
					b.Fatal(err)
				}
			}
		})
	}
}
