// Package serving has what all servers of the module have in common: the words of their fields and
// counters, their errors, the guard that recovers from a panic, and the log with its limit. The
// packages that have servers export what they need of it under the same names.
//
//	serving.go  the types of fields and counters, and the errors
//	panic.go    the guard
//	log.go      the log
//	ending.go   the end of something that has members: it has begun, and it is over
//	host.go     the names of hosts
//
// Below it are the packages that several servers share:
//
//	parking     the Lot of package park
//	carrier     how streams and tunnels use a connection
//	group       how many streams or tunnels there are, and how they end
//	nethttp     connections of requests, and what net/http does not export
//	tlsrecord   TLS connections after their handshake, and KeyUpdate
//	unwrap      the socket, and bytes that were read ahead, below the wrappers of a connection
//	nowait      reads and writes of the sockets of package net that do not wait
//	muxed       streams of HTTP/2, as packages park and park/http2 share them
//	wheel       timers of many connections
//	clock       the time, which tests advance by hand
//	durations   sums of durations that do not overflow
package serving

import (
	"errors"
	"net"
	"os"
	"time"
)

// A SlowPolicy says what happens when more than MaxQueued bytes would be queued for a peer. The
// zero value is the default of the server: SlowDrop where the program waits for room itself, and
// SlowClose elsewhere.
type SlowPolicy uint8

const (
	// SlowClose closes the connection. Its cause is ErrSlow.
	SlowClose SlowPolicy = iota + 1
	// SlowDrop drops what would be queued. The call that has written it fails with ErrQueueFull,
	// and the connection stays open.
	SlowDrop
)

// Valid reports whether p is one of the policies.
func (p SlowPolicy) Valid() bool { return p <= SlowDrop }

// A Rate limits how often something may happen: PerSecond times on average, and Burst times at
// once. The zero Rate, and a negative PerSecond, is no limit. A Burst of 0 means PerSecond.
type Rate struct {
	PerSecond int
	Burst     int
}

// DefaultTimeout is the default of ReadTimeout, WriteTimeout and HandshakeTimeout.
const DefaultTimeout = 10 * time.Second

// FirstRequestTime is the time that a connection has for its first request, since it was accepted, if its server is shut
// down. It is that of net/http.
const FirstRequestTime = 5 * time.Second

// DefaultLinger is the default of Linger.
const DefaultLinger = 500 * time.Millisecond

// Or returns the value of a field: otherwise if it is 0, and 0, which means none, if it is
// negative.
func Or[N int | int64 | time.Duration](field, otherwise N) N {
	if field == 0 {
		return otherwise
	}
	return max(field, 0)
}

// A ClosedError is an error that errors.Is finds to be net.ErrClosed.
type ClosedError string

func (e ClosedError) Error() string      { return string(e) }
func (ClosedError) Is(target error) bool { return target == net.ErrClosed }

// A TimeoutError is a net.Error that errors.Is finds to be os.ErrDeadlineExceeded.
type TimeoutError string

func (e TimeoutError) Error() string      { return string(e) }
func (TimeoutError) Timeout() bool        { return true }
func (TimeoutError) Temporary() bool      { return true }
func (TimeoutError) Is(target error) bool { return target == os.ErrDeadlineExceeded }

// Deadline returns the time at which a timeout ends, which is 10 seconds if the field is 0, or zero
// if there is none.
func Deadline(timeout time.Duration) time.Time {
	d := Or(timeout, DefaultTimeout)
	if d == 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}

// IsTimeout reports whether err is one of a deadline.
func IsTimeout(err error) bool {
	if err == nil {
		return false // before t, which is allocated
	}
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// TimedOut reports whether err is due to a deadline that has passed, and is zero if there was none.
func TimedOut(err error, deadline time.Time) bool {
	return !deadline.IsZero() && IsTimeout(err) && !time.Now().Before(deadline)
}
