// Package freeport is for tests of servers that must be told where to listen, and of what a dial finds when a listener is
// closed.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// The ports to choose from are below those that Linux, Windows, macOS and most BSDs give to outgoing connections and to
// listeners on port 0. So what else the tests open cannot take a port before the server listens on it, or after.
const (
	first = 10_000
	end   = 32_768
)

// Addrs returns n different TCP addresses of the loopback interface on which nothing listens.
func Addrs(t testing.TB, n int) (addrs []string) {
	t.Helper()
	for range n {
		ln := Listen(t)
		defer ln.Close() // not before all were chosen, so that they differ
		addrs = append(addrs, ln.Addr().String())
	}
	return addrs
}

// Listen returns a listener on such an address.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	for tries := 0; ; tries++ {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", Port()))
		if err == nil {
			return ln
		}
		if tries == 1000 {
			t.Fatal(err)
		}
	}
}

// Port returns a random one of the ports to choose from. It may be in use.
func Port() uint16 { return uint16(first + rand.IntN(end-first)) }
