package server

import (
	"cmp"
	"crypto/tls"
	"math"
	"net"
	"reflect"
	"runtime"

	"github.com/socknotify/socknotify/server/internal/conn"
	"github.com/socknotify/socknotify/server/internal/engine"
)

// A config has what a Server was given, whatever its S.
type config struct {
	opts    *Server[any] // a copy of the options
	handler caller       // nil where there is none
	tls     *tls.Config  // nil without TLS
	err     error        // why there is none
}

// configOf returns the config of a server.
func configOf[S any](s *Server[S]) config {
	c := config{opts: new(Server[any])}
	if s.Handler != nil {
		c.handler = newTyped(&s.server, s.Handler)
	}
	copyOptions(c.opts, s)
	return c
}

// copyOptions copies, to each option in the struct that to points to, the one of the same name in
// that of from.
func copyOptions(to, from any) {
	dst, src := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	for i := range dst.NumField() {
		if f := dst.Type().Field(i); f.IsExported() && f.Name != "Handler" {
			dst.Field(i).Set(src.FieldByName(f.Name))
		}
	}
}

const (
	defaultMessage    = 1 << 20
	defaultQueue      = 256 << 10
	defaultHandshakes = 1024
	maxShards         = 1 << 16
)

// check returns an error that names an option that cannot work, or replaces the options that are 0
// by their defaults. Afterwards 0 means none for a timeout and for a limit that has no default.
func (cfg config) check() error {
	if cfg.handler == nil {
		return engine.Invalid("Handler is nil")
	}
	c := cfg.opts
	c.Workers = cmp.Or(c.Workers, runtime.GOMAXPROCS(0))
	c.MaxRunning = engine.Limit(c.MaxRunning, c.Workers+engine.MaxStuck)
	err := cmp.Or(
		engine.CheckNumber("Workers", c.Workers, math.MaxInt32),
		engine.CheckNumber("Shards", c.Shards, maxShards),
		engine.CheckNumber("BufferSize", c.BufferSize, math.MaxInt32),
		engine.CheckNumber("MaxMessage", max(c.MaxMessage, 0), math.MaxInt32),
		engine.CheckNumber("SlowPolicy", int(c.SlowPolicy), int(SlowDrop)),
		engine.CheckNumber("Workers", c.Workers, c.MaxRunning),
		engine.CheckRate("AcceptRate", c.AcceptRate),
		engine.CheckRate("AcceptRatePerAddr", c.AcceptRatePerAddr),
		engine.CheckRate("ReadRate", c.ReadRate), engine.CheckRate("WriteRate", c.WriteRate))
	if err != nil {
		return err
	}
	c.Shards = min(cmp.Or(c.Shards, c.Workers), c.Workers)
	c.MaxMessage = min(engine.Limit(c.MaxMessage, defaultMessage), math.MaxInt32)
	c.MaxQueued = engine.Limit(c.MaxQueued, defaultQueue)
	c.BufferSize = max(min(cmp.Or(c.BufferSize, conn.DefaultBuffer), c.MaxQueued/2), 1)
	c.MaxHandshakes = engine.Limit(c.MaxHandshakes, defaultHandshakes)
	c.IdleTimeout = max(c.IdleTimeout, 0)
	c.ReadTimeout = engine.Timeout(c.ReadTimeout)
	c.WriteTimeout = engine.Timeout(c.WriteTimeout)
	c.HandshakeTimeout = engine.Timeout(c.HandshakeTimeout)
	c.StuckAfter = engine.Timeout(c.StuckAfter)
	return nil
}

// keepAlive returns the settings that KeepAlive and KeepAliveConfig stand for, as in
// net.ListenConfig.
func (s *Server[S]) keepAlive() net.KeepAliveConfig {
	if !s.KeepAliveConfig.Enable && s.KeepAlive >= 0 {
		return net.KeepAliveConfig{Enable: true, Idle: s.KeepAlive}
	}
	return s.KeepAliveConfig
}
