package overlapped

import (
	"fmt"
	"os"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend/system"
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

// Reads of what is in the page cache.
func BenchmarkFile(b *testing.B) {
	for _, c := range []struct{ size, inFlight int }{
		{4 << 10, 1}, {4 << 10, 64}, {64 << 10, 1}, {1 << 20, 16},
	} {
		b.Run(fmt.Sprintf("size=%d/inflight=%d", c.size, c.inFlight), func(b *testing.B) {
			const blocks = 64
			f, err := os.Create(b.TempDir() + "/file")
			if err == nil {
				_, err = f.Write(make([]byte, blocks*c.size))
			}
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			p, err := socknotify.New[int]()
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			ops, bufs, turn := make([]Op[int], c.inFlight), make([][]byte, c.inFlight), 0
			start := func(i int) {
				turn++
				if err := ReadAt(p, f, i, bufs[i], int64(turn%blocks*c.size), &ops[i]); err != nil {
					b.Fatal(err)
				}
			}
			for i := range ops {
				bufs[i] = make([]byte, c.size)
				start(i)
			}
			var out [1]socknotify.Notification[int]
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Process(nil, out[:], -1); err != nil {
					b.Fatal(err)
				}
				if n, err := Of(&out[0]).Result(); n != c.size || err != nil {
					b.Fatal(n, err)
				}
				start(out[0].Key)
			}
		})
	}
}
