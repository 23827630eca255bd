//go:build !race

package server

import (
	"crypto/tls"
	"fmt"
	"io"
	"testing"
)

// BenchmarkTLSEcho is a request and its answer through TLS, whose records this library makes, or
// crypto/tls. The client is crypto/tls.
func BenchmarkTLSEcho(b *testing.B) {
	for _, size := range []int{64, 16 << 10} {
		for _, stock := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/CryptoTLS=%v", size, stock), func(b *testing.B) {
				s := &Server[*int]{Handler: counter{}, Workers: 1, CryptoTLS: stock}
				addr, config := servingTLS(b, s)
				c, err := tls.Dial("tcp", addr, config)
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
				buf := make([]byte, size)
				b.SetBytes(2 * int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.Write(buf); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(c, buf); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
