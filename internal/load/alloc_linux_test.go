//go:build !race

package load_test

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/load"
	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// A request allocates nothing. (Under the race detector pools drop some of what is put into them.) The whole run is
// measured, including its start and its end.
func TestAllocations(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for name, set := range map[string]func(*load.Config){
			"closed": func(*load.Config) {},
			"rate":   func(c *load.Config) { c.Rate = 1e6 },
			"think":  func(c *load.Config) { c.Think = time.Microsecond },
		} {
			t.Run(name, func(t *testing.T) {
				const requests = 20_000
				ctx, m := newMeter(t, 64*requests)
				cfg := config(backend, serve(t, func(c *net.TCPConn, _ int) { echo(c, m.add) }))
				cfg.Connections, cfg.Depth = 4, 2
				set(&cfg)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				res, err := load.Run(ctx, cfg, nil)
				runtime.ReadMemStats(&after)
				healthy(t, cfg, res, err)
				n := float64(after.Mallocs-before.Mallocs) / float64(res.Requests)
				t.Logf("%.4f allocations per request", n)
				if res.Requests < requests || n > 0.1 {
					t.Errorf("%v allocations per request, of %d", n, res.Requests)
				}
			})
		}
	})
}
