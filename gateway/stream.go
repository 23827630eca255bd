package gateway

import (
	"context"
	"io"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/socknotify/socknotify/gateway/internal/stream"
)

// StreamConfig describes the stream of the durable topics. A stream that exists is changed to what
// is set here; what is zero stays as it is there. New fails with ErrStream if the change is not
// possible.
type StreamConfig struct {
	Name     string        // "" is PUSH
	Replicas int           // of a new stream, 0 is 1
	MaxAge   time.Duration // how long events are kept; 0 is 24 hours
	MaxBytes int64         // how many bytes are kept, of each replica; 0 is 1 GiB
	// Window is how long publishers' keys are remembered, at most MaxAge. 0 is 2 minutes, or MaxAge if
	// that is less.
	Window time.Duration
	// Restore, if not nil, is a backup from which the stream is made if there is none, with the
	// backup's configuration where a field is zero. Await makes the gateway wait for the stream
	// instead, until another node has restored it.
	Restore io.ReadSeeker
	Await   bool
}

// ErrStream is returned by New if JetStream refuses to make the stream as StreamConfig says, or to
// change it to that.
var ErrStream = stream.ErrStream

// ErrBackup is returned for a file that is no backup, or is damaged or incomplete.
var ErrBackup = stream.ErrBackup

// Backup writes the stream of the durable topics to w: its configuration, its epoch, and its events
// with their sequences. Publishers may go on: the backup has what was acknowledged before Backup was
// called, and may have some of what followed. name is that of the stream; "" is PUSH.
func Backup(ctx context.Context, conn *nats.Conn, name string, w io.Writer) error {
	return stream.Backup(ctx, conn, name, w)
}

// CloseStream ends a stream that is to be moved: it takes no event from now on, for good, and New
// fails for it with ErrClosed. A backup that follows has all events that were ever acknowledged.
// Clients that come back to a stream that is made from it miss nothing, and are not told of a gap.
// name is that of the stream; "" is PUSH.
func CloseStream(ctx context.Context, conn *nats.Conn, name string) error {
	return stream.Close(ctx, conn, name)
}

// ErrClosed is returned for a stream that CloseStream has ended.
var ErrClosed = stream.ErrClosed

// A Member is a server of NATS that has a replica of the stream, as its leader said at the last
// audit.
type Member struct {
	Name    string
	Leader  bool
	Current bool   // the replica has what the leader has
	Offline bool   // the leader cannot reach it
	Lag     uint64 // operations that the replica is behind
	// Active is the time since the leader has heard from the replica.
	Active time.Duration
}

// A Stream is the state of a stream with events of durable topics, as its leader said at the last audit.
type Stream struct {
	Name        string
	Leader      string // empty without a cluster
	First, Last uint64 // sequences
	// Oldest is when the first event was stored. It is zero if there is none.
	Oldest  time.Time
	Members []Member // servers with a replica
}

// Streams returns the streams of the gateway.
func (g *Gateway) Streams() []Stream {
	seen := g.hub.Seen.Load()
	s := Stream{Name: g.stream, First: seen.First, Last: seen.Last, Oldest: seen.Oldest, Members: g.Members()}
	for _, m := range s.Members {
		if m.Leader {
			s.Leader = m.Name
		}
	}
	return []Stream{s}
}

// Members returns the servers that have replicas of the stream.
func (g *Gateway) Members() []Member {
	replicas := g.hub.Seen.Load().Members
	all := make([]Member, len(replicas))
	for i, r := range replicas {
		all[i] = Member(r)
	}
	return all
}
