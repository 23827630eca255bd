package server

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"net"
	"reflect"
	"runtime"
	"time"

	"github.com/socknotify/socknotify"
)

// A config has the options of a Server[S], which are documented there, under the same names. check
// replaces those that are 0 by their defaults. Afterwards 0 means none for a timeout and for a limit
// that has no default.
type config struct {
	handler calls // nil where there is none

	Workers, MaxRunning, Shards int
	Backend                     string
	BufferSize                  int

	MaxMessage, MaxQueued     int
	SlowPolicy                SlowPolicy
	MaxQueuedTotal            int64
	MaxConns, MaxConnsPerAddr int

	AcceptRate, AcceptRatePerAddr, ReadRate, WriteRate Rate

	Preamble func(remote, local net.Addr, b []byte) (Preamble, error)

	IdleTimeout, ReadTimeout, WriteTimeout time.Duration

	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig

	TLSConfig        *tls.Config
	HandshakeTimeout time.Duration
	MaxHandshakes    int

	Logger     *slog.Logger
	OnStart    func(shards []*socknotify.Port[*Key])
	Name       string
	TimeCalls  bool
	StuckAfter time.Duration
}

// configOf returns the options of a server. It copies each exported field to that of the same name,
// and panics if there is none.
func configOf[S any](s *Server[S]) *config {
	c := new(config)
	if s.Handler != nil {
		c.handler = newTyped(s.Handler)
	}
	from, to := reflect.ValueOf(s).Elem(), reflect.ValueOf(c).Elem()
	for i := range from.NumField() {
		if f := from.Type().Field(i); f.IsExported() && f.Name != "Handler" {
			to.FieldByName(f.Name).Set(from.Field(i))
		}
	}
	return c
}

const (
	tick              = 50 * time.Millisecond
	defaultBuffer     = 64 << 10
	defaultMessage    = 1 << 20
	defaultQueue      = 256 << 10
	defaultHandshakes = 1024
	defaultTimeout    = 10 * time.Second // of reading, writing, handshakes, and of stuck handlers
	lingerTime        = 5 * time.Second
	maxShards         = 1 << 16
	// maxStuck is the number of workers that may take the places of others whose handlers do not
	// return, where MaxRunning says nothing else.
	maxStuck = 512
)

// check returns an error that names an option that cannot work, or sets the defaults.
func (c *config) check() error {
	if c.handler == nil {
		return invalid("Handler is nil")
	}
	c.Workers = cmp.Or(c.Workers, runtime.GOMAXPROCS(0))
	c.MaxRunning = limit(c.MaxRunning, c.Workers+maxStuck)
	err := cmp.Or(
		checkNumber("Workers", c.Workers, math.MaxInt32),
		checkNumber("Shards", c.Shards, maxShards),
		checkNumber("BufferSize", c.BufferSize, math.MaxInt32),
		checkNumber("MaxMessage", max(c.MaxMessage, 0), math.MaxInt32),
		checkNumber("SlowPolicy", int(c.SlowPolicy), int(SlowDrop)),
		checkNumber("Workers", c.Workers, c.MaxRunning),
		checkRate("AcceptRate", c.AcceptRate), checkRate("AcceptRatePerAddr", c.AcceptRatePerAddr),
		checkRate("ReadRate", c.ReadRate), checkRate("WriteRate", c.WriteRate))
	if err != nil {
		return err
	}
	c.Shards = min(cmp.Or(c.Shards, c.Workers), c.Workers)
	c.MaxMessage = min(limit(c.MaxMessage, defaultMessage), math.MaxInt32)
	c.MaxQueued = limit(c.MaxQueued, defaultQueue)
	c.BufferSize = max(min(cmp.Or(c.BufferSize, defaultBuffer), c.MaxQueued/2), 1)
	c.MaxHandshakes = limit(c.MaxHandshakes, defaultHandshakes)
	c.IdleTimeout = max(c.IdleTimeout, 0)
	c.ReadTimeout = timeout(c.ReadTimeout)
	c.WriteTimeout = timeout(c.WriteTimeout)
	c.HandshakeTimeout = timeout(c.HandshakeTimeout)
	c.StuckAfter = timeout(c.StuckAfter)
	return nil
}

// limit returns a limit where a negative number means none, and 0 the default.
func limit(n, byDefault int) int {
	if n < 0 {
		return math.MaxInt
	}
	return cmp.Or(n, byDefault)
}

// timeout returns a timeout where a negative time means none, and 0 the default.
func timeout(d time.Duration) time.Duration { return max(cmp.Or(d, defaultTimeout), 0) }

// checkNumber returns an error that names an option that is a number and out of range.
func checkNumber(name string, n, most int) error {
	switch {
	case n < 0:
		return invalid("%s must not be negative, got %d", name, n)
	case n > most:
		return invalid("%s must be at most %d, got %d", name, most, n)
	}
	return nil
}

// invalid returns an error that matches socknotify.ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("server: %w: %s", socknotify.ErrInvalid, fmt.Sprintf(format, args...))
}
