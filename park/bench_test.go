package park

import (
	"io"
	"net"
	"testing"
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
		server, client := pair(b, "tcp")
		buf := make([]byte, 16)
		var echo func(net.Conn)
		echo = func(conn net.Conn) {
			if n, err := conn.Read(buf); err == nil {
				conn.Write(buf[:n])
				l.Park(conn, echo)
			}
		}
		must(b, l.Park(server, echo))
		rounds(b, client)
	})
	b.Run("goroutine", func(b *testing.B) {
		server, client := pair(b, "tcp")
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
