// Package freeport is for tests of servers that must be told where to listen.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// The ports to choose from are below those that Linux, Windows, macOS and most BSDs give to outgoing connections and to
// listeners on port 0. So what else the tests open cannot take a port before the server listens on it.
const (
	first = 10_000
	end   = 32_768
)

// Addrs returns n different TCP addresses of the loopback interface on which nothing listens.
func Addrs(t testing.TB, n int) (addrs []string) {
	t.Helper()
	for tries := 0; len(addrs) < n; tries++ {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(end-first)))
		if err == nil {
			defer ln.Close() // not before all were chosen, so that they differ
			addrs = append(addrs, ln.Addr().String())
		} else if tries == 1000 {
			t.Fatal(err)
		}
	}
	return addrs
}
