package gateway

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/stream"
)

// StreamConfig describes the streams of the durable topics. Streams that exist are changed to what
// is set here; what is zero stays as it is there. New fails with ErrStream if the change is not
// possible.
type StreamConfig struct {
	Name string // of the first stream, and the beginning of the names of others; "" is PUSH
	// Shards is the number of streams over which the topics are spread, by a hash. Each has a leader
	// of its own, so that several nodes store events at the same time. 0 is the number that there
	// are, and 1 for a new store. All nodes must agree. New does not change the number that there
	// is, and fails with ErrStream for another one: Reshard does, and a restore into an empty store.
	Shards   int
	Replicas int           // of new streams, 0 is 1
	MaxAge   time.Duration // how long events are kept; 0 is 24 hours
	MaxBytes int64         // how many bytes are kept, of each shard and replica; 0 is 1 GiB
	// Window is how long publishers' keys are remembered, at most MaxAge. 0 is 2 minutes, or MaxAge if
	// that is less.
	Window time.Duration
	// Restore, if not nil, is a backup from which the streams are made if there are none, with the
	// backup's configuration where a field is zero. Await makes the gateway wait for the streams
	// instead, until another node has restored them.
	Restore io.ReadSeeker
	Await   bool
}

// MaxShards bounds StreamConfig.Shards.
const MaxShards = event.MaxShards

// Reshard spreads the topics of a store over another number of shards. No gateway may use it; one that
// does ends. No event and no id is lost: the streams that there are stay, to be read, and new ones take
// the events from then on. Publishers' keys from before are forgotten. If Reshard fails, it must be
// repeated before a gateway uses the store. name is as in StreamConfig.
func Reshard(ctx context.Context, conn *nats.Conn, name string, shards int) error {
	if shards < 1 || shards > MaxShards {
		return fmt.Errorf("gateway: reshard: %w: want 1 to %d shards", socknotify.ErrInvalid, MaxShards)
	}
	js, err := jetstream.New(conn)
	if err == nil {
		err = stream.Reshard(ctx, js, cmp.Or(name, stream.DefaultName), shards)
	}
	if err != nil {
		return fmt.Errorf("gateway: reshard: %w", err)
	}
	return nil
}

// ErrStream is returned by New if JetStream refuses to make the stream as StreamConfig says, or to
// change it to that.
var ErrStream = stream.ErrStream

// ErrBackup is returned for a file that is no backup, or is damaged or incomplete.
var ErrBackup = stream.ErrBackup

// Backup writes the streams of the durable topics to w: their configuration, their epoch, and their events
// with their sequences. Publishers may go on: the backup has what was acknowledged before Backup was
// called, and may have some of what followed. name is that of the stream; "" is PUSH.
func Backup(ctx context.Context, conn *nats.Conn, name string, w io.Writer) error {
	return stream.Backup(ctx, conn, name, w)
}

// CloseStream ends streams that are to be moved: they take no event from now on, for good, and New
// fails for them with ErrClosed. A backup that follows has all events that were ever acknowledged.
// Clients that come back to a stream that is made from it miss nothing, and are not told of a gap.
// name is that of the stream; "" is PUSH.
func CloseStream(ctx context.Context, conn *nats.Conn, name string) error {
	return stream.Close(ctx, conn, name)
}

// ErrClosed is returned for a stream that CloseStream has ended.
var ErrClosed = stream.ErrClosed

// A Member is a server of NATS that has a replica of a stream, as its leader said at the last
// audit.
type Member struct {
	Shard   int // of the stream
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

// Streams returns the streams that take events, by shard.
func (g *Gateway) Streams() []Stream {
	all := make([]Stream, len(g.hub.Shards))
	for shard, of := range g.hub.Shards {
		seen := of.Seen.Load()
		s := &all[shard]
		*s = Stream{Name: of.History.Name(), First: seen.First, Last: seen.Last, Oldest: seen.Oldest}
		for _, r := range seen.Members {
			s.Members = append(s.Members, Member{shard, r.Name, r.Leader, r.Current, r.Offline, r.Lag, r.Active})
			if r.Leader {
				s.Leader = r.Name
			}
		}
	}
	return all
}

// Members returns the servers that have replicas of the streams, shard by shard.
func (g *Gateway) Members() (all []Member) {
	for _, s := range g.Streams() {
		all = append(all, s.Members...)
	}
	return all
}
