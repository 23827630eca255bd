package parking

import (
	"io"
	"net"
	"testing"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"
)

// BenchmarkRoundTrip measures the echo of one byte by a parked function, and by a goroutine that blocks in Read.
func BenchmarkRoundTrip(b *testing.B) {
	rounds := func(b *testing.B, client net.Conn) {
		buf := make([]byte, 1)
		b.ReportAllocs()
		for b.Loop() {
			client.Write(buf)
			if _, err := io.ReadFull(client, buf); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("park", func(b *testing.B) {
		l := newLot(b, Config{})
		server, client := conntest.Pair(b, "tcp")
		buf := make([]byte, 16)
		var echo func(net.Conn)
		echo = func(conn net.Conn) {
			if n, err := conn.Read(buf); err == nil {
				conn.Write(buf[:n])
				l.Park(conn, echo)
			}
		}
		check.OK(b, l.Park(server, echo))
		rounds(b, client)
	})
	b.Run("goroutine", func(b *testing.B) {
		server, client := conntest.Pair(b, "tcp")
		done := make(chan struct{})
		go func() {
			defer close(done)
			buf := make([]byte, 16)
			for {
				n, err := server.Read(buf)
				if err != nil {
					return
				}
				server.Write(buf[:n])
			}
		}()
		rounds(b, client)
		client.Close()
		<-done
	})
}
