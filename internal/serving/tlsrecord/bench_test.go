package tlsrecord

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"
)

// sides are a server's connections of crypto/tls and of this package.
var sides = []struct {
	name  string
	serve func(net.Conn) net.Conn
}{
	{"crypto-tls", func(c net.Conn) net.Conn { return tls.Server(c, base) }},
	{"records", func(c net.Conn) net.Conn { return Server(c, base, nil) }},
}

// BenchmarkEcho sends a message to a server and back. The client is crypto/tls.
func BenchmarkEcho(b *testing.B) {
	for _, size := range []int{64, 16 << 10} {
		for _, side := range sides {
			b.Run(fmt.Sprintf("%d/%s", size, side.name), func(b *testing.B) {
				x, y := loopback(b)
				client, server := tls.Client(x, clientConfig), side.serve(y)
				go func() {
					for buf := make([]byte, size); ; {
						n, err := server.Read(buf)
						if err != nil {
							return
						}
						server.Write(buf[:n])
					}
				}()
				buf := make([]byte, size)
				b.SetBytes(2 * int64(size))
				for b.Loop() {
					client.Write(buf)
					if _, err := io.ReadFull(client, buf); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkHandshake makes connections over which one byte is sent each way.
func BenchmarkHandshake(b *testing.B) {
	for _, side := range sides {
		b.Run(side.name, func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					s := side.serve(c)
					io.ReadFull(s, make([]byte, 1))
					s.Write([]byte{1})
					s.Close()
				}
			}()
			b.ReportAllocs()
			for b.Loop() {
				c, err := tls.Dial("tcp", l.Addr().String(), clientConfig)
				if err != nil {
					b.Fatal(err)
				}
				c.Write([]byte{1})
				if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
					b.Fatal(err)
				}
				c.Close()
			}
		})
	}
}

// BenchmarkWake opens and makes one record each with ciphers that were dropped.
func BenchmarkWake(b *testing.B) {
	x, y := ends(tls.VersionTLS13, tls.TLS_AES_128_GCM_SHA256)
	for _, drop := range []bool{false, true} {
		name := "busy"
		if drop {
			name = "idle"
		}
		b.Run(name, func(b *testing.B) {
			buf := make([]byte, 0, 200)
			b.ReportAllocs()
			for b.Loop() {
				record, _ := x.Append(buf, buf[:64])
				if _, err := y.Open(nil, record); err != nil {
					b.Fatal(err)
				}
				if drop {
					x.DropOut()
					y.Drop()
				}
			}
		})
	}
}
