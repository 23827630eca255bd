package park

import (
	"time"

	"github.com/socknotify/socknotify/metrics"
)

// Stats holds counters of a [Lot], a [Server], [Streams], [Tunnels] or an [HTTPServer]. Those that
// one of them does not have are 0. The counters of an HTTPServer are summed over all calls of Serve.
type Stats struct {
	// Conns is the number of open connections, of a Server, an HTTPServer or Streams, and of open
	// Tunnels. An HTTPServer does not have those that were hijacked, such as WebSockets.
	Conns int

	Parked  int // connections that are parked, or ready and waiting for a worker
	Waiting int // the part of Parked that is ready, and waits because MaxRunning functions are running
	Running int // functions that are running
	Workers int // goroutines that run functions or wait for work
	// QueuedBytes has what Streams have queued for their peers; a block that several streams share
	// counts for each. Of Tunnels it has what one side has received and the other has not taken.
	QueuedBytes int64

	// BytesForth and BytesBack count what Tunnels have moved, from the first connection of each to
	// the second and back.
	BytesForth, BytesBack uint64
	// Copied counts upgraded connections that a ReverseProxy or a Handler of Tunnels has left to the
	// proxy's own copying.
	Copied uint64

	// Accepted counts the connections that a Server has accepted within MaxConns, all those that an
	// HTTPServer has accepted, and the Streams and Tunnels that were opened. Refused counts those
	// beyond MaxConns or MaxConnsPerAddr, and RefusedPerAddr the latter alone. A connection whose
	// address comes in a header is refused because of its address after it was accepted.
	Accepted, Refused, RefusedPerAddr uint64
	// Dropped counts calls of Write that have failed with ErrQueueFull.
	Dropped uint64
	// Rejected counts what peers have sent that no handler was called for: TLS handshakes of a
	// Server or of Tunnels that failed, but for those that took longer than HandshakeTimeout; and requests of
	// HTTP/1 that net/http has answered with an error, because they are malformed or have more
	// header bytes than Server.MaxHeaderBytes allows.
	Rejected uint64
	// Calls counts calls of a Server's Handler and of a Stream's OnInput, and requests that the
	// handler of an HTTPServer was called for.
	Calls uint64
	// CallTime holds how long calls took that returned, if TimeCalls is set: those of functions of
	// a Lot, of Handler or OnInput, or of the handler of an HTTPServer.
	CallTime metrics.Histogram
	// Panics counts panics of the methods and functions of a program that park has recovered from,
	// and, of a Server, those of Handler, Open and Closed. net/http and park/http2 recover from
	// those of an http.Handler.
	Panics     uint64
	Handshakes uint64 // TLS handshakes of a Server that were completed
	// CryptoTLS counts TLS connections that crypto/tls keeps after the handshake, because of their
	// version or cipher suite or because a session of TLS 1.2 was resumed. It does not count those
	// that it keeps because of the field CryptoTLS or of a protocol in TLSNextProto.
	CryptoTLS uint64
	// UnparkedHTTP2 counts the connections of HTTP/2 with TLS that an HTTPServer has left to net/http,
	// which does not park them, because the field HTTP2 is nil.
	UnparkedHTTP2 uint64
	TimedOut      metrics.TimedOut // connections that a Server has closed because of a timeout

	// Suspended is the number of requests that wait, and SuspendedBytes that of the bytes of their
	// heads and bodies. Blocked is the part of Suspended that keeps a goroutine; see Suspend.
	Suspended      int
	Blocked        int
	SuspendedBytes int64
	LongestWait    time.Duration
	// LongestWait is the time, to a second, that the oldest of them has waited. WaitTime holds how
	// long those have waited that no longer wait. Resumed counts those that Resume has ended,
	// WaitTimeouts and ClientsGone those that their timeout and their client has ended, and
	// WaitsClosed those that have ended by Shutdown, Close or a panic of their handler.
	WaitTime                                        metrics.Histogram
	Resumed, WaitTimeouts, ClientsGone, WaitsClosed uint64
	// RefusedSuspends counts calls of Suspend that have failed with ErrMaxSuspended.
	RefusedSuspends uint64

	Parks   uint64 // calls of Park so far
	AtOnce  uint64 // the part of Parks for which the function ran immediately because bytes were buffered
	Expired uint64 // the part of Parks that ended by their timeout
	// Unparkable counts calls of Park that failed with ErrUnparkable, and, of an HTTPServer, a
	// Server or a listener, the connections that are served without being parked for this reason.
	Unparkable uint64
}

// add adds the counters of another lot.
func (s *Stats) add(o Stats) {
	s.Parked += o.Parked
	s.Waiting += o.Waiting
	s.Running += o.Running
	s.Workers += o.Workers
	s.Panics += o.Panics
	s.Parks += o.Parks
	s.AtOnce += o.AtOnce
	s.Expired += o.Expired
	s.Unparkable += o.Unparkable
	s.CallTime.Add(o.CallTime)
}
