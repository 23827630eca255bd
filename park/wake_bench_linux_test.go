package park

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/internal/test/idling"
)

// BenchmarkWake measures a request on a connection that asks once in two seconds.
func BenchmarkWake(b *testing.B) {
	for _, kind := range []struct {
		name, stock string
		secure      bool
	}{
		{"park HTTP", "net/http", false},
		{"park HTTP at once", "net/http", false},
		{"park HTTP TLS", "net/http TLS", true},
	} {
		b.Run(kind.name, func(b *testing.B) {
			for b.Loop() {
				idling.CompareWakes(b, kind.stock, kind.name, fmt.Sprint(kind.secure))
			}
		})
	}
}

// BenchmarkStorm measures what a server needs while clients connect and ask, one immediately after the other, a minute
// later, and when they have gone.
func BenchmarkStorm(b *testing.B) {
	for _, kind := range []string{"net/http", "park HTTP", "net/http TLS", "park HTTP TLS"} {
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				secure := strings.HasSuffix(kind, "TLS")
				idling.MeasureStorm(b, kind, kind, fmt.Sprint(secure)).Report(b)
			}
		})
	}
}

// runRareLoad is the clients of BenchmarkWake.
func runRareLoad(address string, secure bool) {
	idling.RareLoad(func() (func() error, error) {
		conn, err := idling.Dial(address, secure)
		buf := make([]byte, 4096)
		return func() error {
			if _, err := io.WriteString(conn, hello); err != nil {
				return err
			}
			k, err := conn.Read(buf)
			if err == nil && !strings.HasSuffix(string(buf[:k]), "\r\n\r\nx") {
				err = fmt.Errorf("got %q", buf[:k])
			}
			return err
		}, err
	})
}
