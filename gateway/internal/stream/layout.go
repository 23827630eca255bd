package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/socknotify/socknotify/gateway/internal/event"
)

// A Layout says over which streams the topics are spread. It is kept in the metadata of the first
// stream, whose name is that of all.
//
// When the number of shards changes, the streams that there are take no further event, and stay until
// the retention has emptied them. New streams follow, whose sequences begin above all earlier ones. So
// the sequences of a topic only grow, one of them says in which generation it is, and no event is copied.
type Layout struct {
	Name        string
	Generations []Generation // the last one takes events
}

// A Generation is the shards between two changes of their number.
type Generation struct {
	Shards int    `json:"shards"`
	Base   uint64 `json:"base"` // its sequences are above it, and those of earlier generations are not
}

// now returns the number of the generation that takes events.
func (l Layout) now() int { return len(l.Generations) - 1 }

// Shards returns the number of shards that take events.
func (l Layout) Shards() int { return l.Generations[l.now()].Shards }

// Stream returns the name of the stream of a shard.
func (l Layout) Stream(generation, shard int) string {
	if generation == 0 && shard == 0 {
		return l.Name
	}
	return fmt.Sprintf("%s-%d-%d", l.Name, generation, shard)
}

// others calls f for the streams but the first one.
func (l Layout) others(f func(name string, generation, shard int) error) error {
	for g, of := range l.Generations {
		for shard := range of.Shards {
			if g == 0 && shard == 0 {
				continue
			}
			if err := f(l.Stream(g, shard), g, shard); err != nil {
				return err
			}
		}
	}
	return nil
}

// The metadata of the first stream beside those of all. layoutKey has the generations, as JSON; without
// it there is one, of one shard. reshardingKey says that a change of the number has begun.
const (
	layoutKey     = "push-shards"
	reshardingKey = "push-resharding"
)

// layoutOf returns the layout in the metadata of the first stream.
func layoutOf(name string, metadata map[string]string) (Layout, error) {
	l := Layout{Name: name, Generations: []Generation{{Shards: 1}}}
	if text, ok := metadata[layoutKey]; ok {
		if err := json.Unmarshal([]byte(text), &l.Generations); err != nil || len(l.Generations) == 0 {
			return l, fmt.Errorf("%w: stream %s: %s is %q", ErrStream, name, layoutKey, text)
		}
	}
	return l, nil
}

// note writes the layout to the metadata of the first stream.
func (l Layout) note(metadata map[string]string) {
	if l.now() > 0 || l.Shards() > 1 { // a stream alone is as it was before there were shards
		metadata[layoutKey] = string(event.Encode(l.Generations))
	}
}

// settings returns the configuration of a new stream of a shard.
func (l Layout) settings(common jetstream.StreamConfig, generation, shard int) jetstream.StreamConfig {
	of := l.Generations[generation]
	c, prefix := common, event.StoredIn(shard, of.Shards)
	c.Name, c.Subjects = l.Stream(generation, shard), []string{prefix + ">"}
	c.RePublish = &jetstream.RePublish{Source: prefix + ">", Destination: event.RepublishedPrefix + ">"}
	c.Metadata = maps.Clone(common.Metadata)
	c.FirstSeq = 0
	if of.Base > 0 {
		c.FirstSeq = of.Base + 1
	}
	return c
}

// create makes the streams of the last generation but the first of all. Several members may do that at
// the same time, in the same order. The first stream that is made decides the epoch, which is returned.
func (l Layout) create(ctx context.Context, js jetstream.JetStream, common jetstream.StreamConfig) (epoch string, err error) {
	g := l.now()
	epoch = common.Metadata[EpochKey]
	for shard := range l.Shards() {
		if g == 0 && shard == 0 {
			continue
		}
		c := l.settings(common, g, shard)
		c.Metadata[EpochKey] = epoch
		made, err := js.CreateStream(ctx, c)
		if err != nil {
			there, failed := js.Stream(ctx, c.Name)
			if failed != nil {
				return "", err
			}
			made = there
		}
		info := made.CachedInfo()
		if info.State.LastSeq != l.Generations[g].Base || info.Config.Subjects[0] != c.Subjects[0] {
			// Another member may have made all streams in the meantime.
			return "", fmt.Errorf("the stream %s exists already, and has events", c.Name)
		}
		epoch = info.Config.Metadata[EpochKey]
	}
	return epoch, nil
}

// check reports an error if the number of shards is not what is configured.
func (l Layout) check(want int) error {
	if want == 0 || want == l.Shards() {
		return nil
	}
	return fmt.Errorf("%w: Shards is %d, and the store has %d: use that number on all nodes, or stop all and reshard, or restore a backup into an empty store",
		ErrStream, want, l.Shards())
}

// Reshard spreads the topics over another number of shards, as gateway.Reshard says.
func Reshard(ctx context.Context, js jetstream.JetStream, name string, shards int) error {
	head, err := js.Stream(ctx, name)
	if err != nil {
		return err
	}
	m := head.CachedInfo().Config.Metadata
	l, err := layoutOf(name, m)
	switch {
	case err != nil:
		return err
	case m[restoringKey] != "":
		return errRestoring
	case m[closedKey] != "":
		return ErrClosed
	case shards == l.Shards() && m[reshardingKey] == "":
		return nil
	}
	err = updateStream(ctx, js, name, func(info *jetstream.StreamInfo) {
		info.Config.Metadata[reshardingKey] = fmt.Sprint(shards)
	})
	if err != nil {
		return err
	}
	next, err := l.extend(ctx, js, shards, m[EpochKey])
	if err != nil {
		return err
	}
	return updateStream(ctx, js, name, func(info *jetstream.StreamInfo) {
		next.note(info.Config.Metadata)
		delete(info.Config.Metadata, reshardingKey)
	})
}

// extend closes the streams that take events, and makes those of a further generation, with an epoch.
// The first stream must take the layout then. extend may be repeated after it was interrupted.
func (l Layout) extend(ctx context.Context, js jetstream.JetStream, shards int, epoch string) (next Layout, err error) {
	base := uint64(0)
	var common jetstream.StreamConfig
	for shard := range l.Shards() {
		name := l.Stream(l.now(), shard)
		err := updateStream(ctx, js, name, func(info *jetstream.StreamInfo) {
			info.Config.Subjects = []string{noSubject(name)}
		})
		if err != nil {
			return next, err
		}
		// What was on its way is stored before this answer, and nothing is after it.
		s, err := js.Stream(ctx, name)
		if err != nil {
			return next, err
		}
		info := s.CachedInfo()
		if info.Config.Replicas > 1 && (info.Cluster == nil || info.Cluster.Leader == "") {
			return next, ErrNoLeader
		}
		base, common = max(base, info.State.LastSeq), info.Config
	}
	next = Layout{Name: l.Name, Generations: append(l.Generations[:len(l.Generations):len(l.Generations)], Generation{shards, base})}
	common.Metadata = map[string]string{EpochKey: epoch}
	found, err := next.create(ctx, js, common)
	if err == nil && found != epoch {
		err = fmt.Errorf("the stream %s exists already, with another epoch", next.Stream(next.now(), 0))
	}
	return next, err
}
