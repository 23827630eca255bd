package http2

import "time"

// A client may ask for answers that move nothing: by PING frames, and by SETTINGS frames, which must be
// acknowledged. It may do so maxAsks times at once, asksPerSecond times in a second, and asksPerFrame
// times for each frame that moves a part of a request or response. One that asks for more has nothing
// else to do than to keep the server busy, also if it reads all answers (CVE-2019-9512, CVE-2019-9515).
//
// Clients that ask often are far below that. gRPC's sends a PING every ten seconds at most to find out
// whether the connection lives, and while it receives one for a DATA frame at most, to measure the
// bandwidth. Browsers send one before a request on a connection that was idle.
const (
	maxAsks       = 1000
	asksPerSecond = 100
	asksPerFrame  = 10
)

// asks counts how often a client has asked, beyond what it may.
type asks struct {
	n     int32
	since moment // when it was last made less for the time that has passed
}

// take counts a frame that asks for an answer. It reports whether the client may have it.
func (a *asks) take(now func() time.Time) bool {
	if a.n >= maxAsks {
		at := momentOf(now())
		a.n -= int32(min(int64(a.n), int64(at-a.since)*asksPerSecond/int64(time.Second)))
		a.since = at
	}
	if a.n >= maxAsks {
		return false
	}
	a.n++
	return true
}

// earn counts a frame that moves something.
func (a *asks) earn() { a.n = max(a.n-asksPerFrame, 0) }
