package park

import (
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/clock"
	"github.com/socknotify/socknotify/metrics"
)

// waits counts the requests of an HTTPServer that wait.
type waits struct {
	ending serving.Ending // begun by Shutdown; over when nothing waits
	clock  clock.Clock
	start  time.Time
	times  metrics.Recorder

	mu               sync.Mutex
	began            map[time.Duration]int // by the second, since start, in which they began to wait
	waiting, blocked int
	bytes            int64
	refused          uint64
	streams          map[*suspendedStream]struct{}
	ended            [endingsCount]uint64
}

// open is called before the first request.
func (c *waits) open() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock = clock.Current()
	c.start, c.began = c.clock.Now(), make(map[time.Duration]int)
}

// claim counts a request that is to wait. It returns the time, since start. release must follow,
// unless claim fails: with http.ErrServerClosed after Shutdown, and with ErrMaxSuspended.
func (s *HTTPServer) claim(size int64, blocks bool) (since time.Duration, err error) {
	c := &s.waits
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ending.HasBegun():
		return 0, http.ErrServerClosed
	case s.MaxSuspended > 0 && c.waiting >= s.MaxSuspended,
		s.MaxSuspendedBytes > 0 && c.bytes+size > s.MaxSuspendedBytes:
		c.refused++
		return 0, ErrMaxSuspended
	}
	since = c.clock.Since(c.start)
	c.began[since.Truncate(time.Second)]++
	c.waiting++
	c.bytes += size
	if blocks {
		c.blocked++
	}
	return since, nil
}

// release ends the wait of a request that claim has counted, before then is called. With undecided
// it has not waited.
func (s *HTTPServer) release(why ending, size int64, since time.Duration, blocks bool) {
	c := &s.waits
	waited := c.clock.Since(c.start) - since
	c.mu.Lock()
	second := since.Truncate(time.Second)
	if c.began[second]--; c.began[second] == 0 {
		delete(c.began, second)
	}
	c.waiting--
	c.bytes -= size
	if blocks {
		c.blocked--
	}
	c.ended[why]++
	c.ending.Left(c.waiting)
	c.mu.Unlock()
	if why != undecided {
		c.times.Record(waited)
	}
}

// addTo sets the counters of waiting requests.
func (c *waits) addTo(st *Stats) {
	c.mu.Lock()
	st.Suspended, st.Blocked, st.SuspendedBytes = c.waiting, c.blocked, c.bytes
	st.RefusedSuspends, st.Resumed = c.refused, c.ended[byResume]
	st.WaitTimeouts, st.ClientsGone = c.ended[byTimeout], c.ended[byClient]
	st.WaitsClosed = c.ended[byServer] + c.ended[byPanic]
	for second := range c.began {
		st.LongestWait = max(st.LongestWait, c.clock.Since(c.start)-second)
	}
	c.mu.Unlock()
	c.times.AddTo(&st.WaitTime)
}

// close makes claim fail, and ends the waits of goroutines and of requests of HTTP/2.
func (c *waits) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for x := range c.streams {
		x.q.decide(byServer)
		x.Wake()
	}
	c.ending.Begin(c.waiting)
}

// endWaits ends the waits of all requests for Shutdown, unless EndSuspended is set. It returns a channel that is closed
// when their then has been called: net/http serves no further request after its own Shutdown.
func (s *HTTPServer) endWaits(served []*listener) (ended <-chan struct{}) {
	s.waits.close()
	if s.EndSuspended {
		none := make(chan struct{})
		close(none)
		return none
	}
	for _, l := range served {
		l.endSuspended()
	}
	return s.waits.ending.Over()
}

// endSuspended ends the waits of all requests that are parked.
func (l *listener) endSuspended() {
	l.lot.engine.WakeAll(func(conn net.Conn) bool {
		c, ok := conn.(suspendedConn)
		if ok {
			c.q.decide(byServer)
		}
		return ok
	})
}

// wakeParked makes the function of a connection run that is parked for q.
func (hc *httpConn) wakeParked(q *Suspended) {
	hc.in.lot.engine.WakeSocket(hc.base, hc.raw, suspendedConn{q: q})
}
