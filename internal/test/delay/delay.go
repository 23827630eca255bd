// Package delay makes goroutines late at random, so that orders of events occur that are rare. The
// flaky command inserts calls of [Point] before statements that synchronise.
package delay

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"time"
)

// Env is the variable that turns delays on: one of so many points waits.
const Env = "SOCKNOTIFY_DELAYS"

var oneOf = func() uint32 {
	n, _ := strconv.ParseUint(os.Getenv(Env), 10, 32)
	return uint32(n)
}()

// Point lets other goroutines run, or waits for up to 5 ms, now and then.
func Point() {
	if oneOf == 0 || rand.Uint32N(oneOf) != 0 {
		return
	}
	if rand.Uint32N(4) != 0 {
		runtime.Gosched()
		return
	}
	time.Sleep(time.Duration(rand.Uint32N(5000)) * time.Microsecond)
}
