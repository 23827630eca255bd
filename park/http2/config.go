package http2

import (
	"cmp"
	"net/http"
	"time"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/park/http2/internal/flow"
	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

// Limits and settings that are the same for all connections of a server.
const (
	defaultWindow    = 1 << 20
	defaultStreams   = 250
	initialTableSize = 4096 // RFC 9113 (6.5.2)
	prefaceTimeout   = 10 * time.Second
	drainTimeout     = time.Second
	maxSettings      = 100 // in a frame, as in net/http
)

// config returns the settings of HTTP/2, which are not nil.
func (s *Server) config() *http.HTTP2Config {
	if c := s.Server.HTTP2; c != nil {
		return c
	}
	return new(http.HTTP2Config)
}

// count passes the name of an error to CountError, and returns the error.
func (s *Server) count(name string, err error) error {
	if f := s.config().CountError; f != nil {
		f(name)
	}
	return err
}

// setting returns n if it is at least least and below bound, and otherwise the default.
func setting[N int | int32 | uint32](n, least, bound int, otherwise N) N {
	if n < least || n >= bound {
		return otherwise
	}
	return N(n)
}

// readFrameSize is the longest frame that is received.
func (s *Server) readFrameSize() int {
	return setting(s.config().MaxReadFrameSize, wire.MaxSize, 1<<24, largeIn-wire.HeaderSize)
}

// encoderTable is the size of the table for response headers, or 0 if there is none.
func (s *Server) encoderTable() uint32 {
	return setting[uint32](s.config().MaxEncoderHeaderTableSize, 1, 4<<20, 0)
}

// pingTimeout is the time in which a PING must be answered.
func (s *Server) pingTimeout() time.Duration {
	return cmp.Or(max(s.config().PingTimeout, 0), 15*time.Second)
}

func (s *Server) maxStreams() int {
	return cmp.Or(max(s.config().MaxConcurrentStreams, 0), defaultStreams)
}

func (s *Server) streamWindow() int32 {
	return setting[int32](s.config().MaxReceiveBufferPerStream, 1, 4<<20, defaultWindow)
}

func (s *Server) connWindow() int32 {
	n := s.config().MaxReceiveBufferPerConnection
	return setting[int32](n, flow.Initial+1, 4<<20, defaultWindow)
}

func (s *Server) tableSize() uint32 {
	return setting[uint32](s.config().MaxDecoderHeaderTableSize, 1, 4<<20, initialTableSize)
}

// maxHeaderList is the size of the decoded headers of a request, by RFC 9113's way to count.
// net/http adds the same for the names and values that do not count in HTTP/1.1.
func (s *Server) maxHeaderList() uint32 {
	n := cmp.Or(max(s.Server.MaxHeaderBytes, 0), http.DefaultMaxHeaderBytes)
	return uint32(min(n, 1<<30) + 10*32)
}

func (s *Server) linger() time.Duration { return serving.Or(s.Linger, serving.DefaultLinger) }

func (s *Server) idleTimeout() time.Duration {
	return max(cmp.Or(s.Server.IdleTimeout, s.Server.ReadTimeout), 0)
}

func (s *Server) readHeaderTimeout() time.Duration {
	return max(cmp.Or(s.Server.ReadHeaderTimeout, s.Server.ReadTimeout), 0)
}
