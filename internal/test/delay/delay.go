// Package delay makes goroutines late at random, so that orders of events occur that are rare. The
// flaky command inserts calls of [Point] before statements that synchronise.
package delay

import (
	"math/rand/v2"
	"runtime"
	"time"
)

// oneOf is the share of the calls of Point that wait.
const oneOf = 200

// Point lets other goroutines run, or waits for up to 5 ms, now and then.
func Point() {
	if rand.Uint32N(oneOf) != 0 {
		return
	}
	if rand.Uint32N(4) != 0 {
		runtime.Gosched()
		return
	}
	time.Sleep(time.Duration(rand.Uint32N(5000)) * time.Microsecond)
}
