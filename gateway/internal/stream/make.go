package stream

import (
	"cmp"
	"context"

	"github.com/socknotify/socknotify/gateway/internal/event"

	crand "crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	MaxPayload = 8 << 20 // bytes of a message with its headers
	MaxHeaders = 4 << 10 // bytes of the headers of an event
)

// A Config describes the stream, as gateway.StreamConfig does.
type Config struct {
	Name     string
	Shards   int
	Replicas int
	MaxAge   time.Duration
	MaxBytes int64
	Window   time.Duration
	Restore  io.ReadSeeker
	Await    bool
}

// ErrStream is returned if JetStream refuses to make the stream as streamConfig says, or to
// change it to that.
var ErrStream = errors.New("gateway: the stream cannot be as configured")

// apply changes a stream that exists to what is set in c.
func (c *Config) apply(ctx context.Context, js jetstream.JetStream,
	now jetstream.StreamConfig, log *slog.Logger) error {
	changed := now
	names := differ(nil, "Replicas", &changed.Replicas, c.Replicas)
	names = differ(names, "MaxAge", &changed.MaxAge, c.MaxAge)
	names = differ(names, "MaxBytes", &changed.MaxBytes, c.MaxBytes)
	window := c.Window
	if window == 0 && changed.MaxAge > 0 {
		window = min(now.Duplicates, changed.MaxAge)
	}
	names = differ(names, "Window", &changed.Duplicates, window)
	if len(names) == 0 {
		return nil
	}
	what := strings.Join(names, ", ")
	_, err := js.UpdateStream(ctx, changed)
	if err == nil {
		log.Info("gateway: the stream was changed", "stream", now.Name, "what", what)
	}
	return refusal(err, what)
}

// differ changes a setting to what is wanted, if that is more than 0, and adds the change to names.
func differ[N int | int64 | time.Duration](names []string, name string, now *N, want N) []string {
	if want <= 0 || want == *now {
		return names
	}
	names = append(names, fmt.Sprintf("%s from %v to %v", name, *now, want))
	*now = want
	return names
}

// refusal returns errStream for an answer of JetStream that no waiting will change, and other
// errors as they are.
func refusal(err error, what string) error {
	var refused *jetstream.APIError
	if errors.As(err, &refused) && slices.Contains(refusals, refused.ErrorCode) {
		return fmt.Errorf("%w: %s: %w", ErrStream, what, err)
	}
	return err
}

// refusals are JetStream's codes for a configuration that is not possible: as such, and for its
// replicas.
var refusals = []jetstream.ErrorCode{10052, 10074}

// The metadata of the stream. epochKey says which stream it is: a stream that is deleted and made
// once more, or made from a backup, has another epoch. erasKey has the eras of the streams that it
// was made from, as JSON. A stream with restoringKey is being made from a backup. One with
// closedKey takes no event any more.
const (
	EpochKey     = "push-epoch"
	erasKey      = "push-eras"
	restoringKey = "push-restoring"
	closedKey    = "push-closed"
)

// An Era is an epoch of another stream from which this one was made. They have the same events up
// to the sequence Last.
type Era struct {
	Epoch string
	Last  uint64
	Whole bool // the other stream never had a later event in this epoch
}

// maxEras bounds the eras that a stream remembers.
const maxEras = 32

// erasOf returns the eras in a stream's metadata, the newest first.
func erasOf(metadata map[string]string) (eras []Era) {
	json.Unmarshal([]byte(metadata[erasKey]), &eras) // what cannot be read is unknown
	return eras
}

const epochSize = 8

// NewEpoch returns the name of an epoch.
func NewEpoch() string {
	b := make([]byte, epochSize/2)
	crand.Read(b)
	return hex.EncodeToString(b)
}

// EndEra gives the streams that were made from a backup a new epoch, and opens those that take events.
// If shards is another number than that of the backup, it is that of the streams then. The first stream
// comes last: until then it says that it is being restored, and with which epoch.
func EndEra(ctx context.Context, js jetstream.JetStream, name string, shards int) error {
	head, err := js.Stream(ctx, name)
	if err != nil {
		return err
	}
	m := head.CachedInfo().Config.Metadata
	l, err := layoutOf(name, m)
	if err != nil {
		return err
	}
	epoch, whole := m[restoringKey], m[closedKey] != ""
	if len(epoch) != epochSize { // of an earlier version
		epoch = NewEpoch()
	}
	changes := shards != 0 && shards != l.Shards()
	end := func(info *jetstream.StreamInfo, generation, shard int) {
		m := info.Config.Metadata
		if m[EpochKey] != epoch {
			eras := append([]Era{{m[EpochKey], info.State.LastSeq, whole}}, erasOf(m)...)
			m[EpochKey] = epoch
			m[erasKey] = string(event.Encode(eras[:min(len(eras), maxEras)]))
		}
		delete(m, restoringKey)
		delete(m, closedKey)
		if generation == l.now() && !changes {
			info.Config.Subjects = []string{event.StoredIn(shard, l.Shards()) + ">"}
		}
	}
	err = l.others(func(name string, generation, shard int) error {
		return updateStream(ctx, js, name, func(info *jetstream.StreamInfo) { end(info, generation, shard) })
	})
	if err != nil {
		return err
	}
	next := l
	if changes {
		if next, err = l.extend(ctx, js, shards, epoch); err != nil {
			return err
		}
	}
	return updateStream(ctx, js, name, func(info *jetstream.StreamInfo) {
		end(info, 0, 0)
		next.note(info.Config.Metadata)
	})
}

// updateStream changes the configuration of a stream.
func updateStream(ctx context.Context, js jetstream.JetStream, name string,
	change func(*jetstream.StreamInfo)) error {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	if info.Config.Replicas > 1 && (info.Cluster == nil || info.Cluster.Leader == "") {
		return ErrNoLeader // its last sequence may be an old one
	}
	info.Config.Metadata = maps.Clone(info.Config.Metadata)
	if info.Config.Metadata == nil {
		info.Config.Metadata = make(map[string]string)
	}
	change(info)
	_, err = js.UpdateStream(ctx, info.Config)
	return err
}

var errRestoring = errors.New("it is being restored")

const DefaultName = "PUSH"

// Make makes the streams, unless they exist, and returns their layout. In a cluster it tries again
// until there is a leader. maxEvent is the largest event.
func Make(ctx context.Context, conn *nats.Conn, c Config, maxEvent int, log *slog.Logger) (Layout, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return Layout{}, fmt.Errorf("gateway: %w", err)
	}
	if c.Name == "" {
		c.Name = DefaultName
	}
	maxAge := cmp.Or(c.MaxAge, 24*time.Hour)
	config := jetstream.StreamConfig{
		Replicas: cmp.Or(c.Replicas, 1),
		MaxAge:   maxAge, MaxBytes: cmp.Or(c.MaxBytes, 1<<30),
		Duplicates: cmp.Or(c.Window, min(2*time.Minute, maxAge)),
		Storage:    jetstream.FileStorage, Discard: jetstream.DiscardOld,
		AllowDirect: true, DenyDelete: true, DenyPurge: true,
		MaxMsgSize: int32(min(maxEvent+MaxHeaders, math.MaxInt32)),
		Metadata:   map[string]string{EpochKey: NewEpoch()},
	}
	reported := ""
	for first := true; ; first = false {
		layout, exists, err := tryStream(ctx, js, c, config, log)
		if exists && first && c.Restore != nil {
			log.Info("gateway: the stream exists, so the backup is not restored", "stream", c.Name)
		}
		if err == nil {
			return layout, nil
		}
		if errors.Is(err, ErrBackup) || errors.Is(err, ErrClosed) || errors.Is(err, ErrStream) {
			return layout, err
		}
		if text := err.Error(); text != reported { // it may last until other members have started, or for good
			reported = text
			log.Info("gateway: the stream does not exist yet", "stream", c.Name, "err", err)
		}
		if !Sleep(ctx, 200*time.Millisecond) {
			return layout, fmt.Errorf("gateway: make stream %s: %w", c.Name, err)
		}
	}
}

// tryStream makes the streams, or changes those that exist.
func tryStream(ctx context.Context, js jetstream.JetStream, c Config,
	config jetstream.StreamConfig, log *slog.Logger) (l Layout, exists bool, err error) {
	try, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	stream, err := js.Stream(try, c.Name)
	restoring := false // by another node, or by this one before it ended
	switch {
	case err == nil:
		m := stream.CachedInfo().Config.Metadata
		if restoring = m[restoringKey] != ""; restoring {
			break
		}
		l, err = layoutOf(c.Name, m)
		switch {
		case err != nil:
			return l, true, err
		case m[closedKey] != "":
			return l, true, ErrClosed
		case m[reshardingKey] != "":
			return l, true, fmt.Errorf("%w: a change to %s shards was interrupted: do it again", ErrStream, m[reshardingKey])
		}
		if err := l.check(c.Shards); err != nil {
			return l, true, err
		}
		return l, true, l.apply(try, js, &c, log)
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return l, false, err
	}
	switch {
	case restoring && c.Restore == nil:
		return l, false, errRestoring
	case c.Await:
		return l, false, err
	case c.Restore == nil:
		l = Layout{c.Name, []Generation{{Shards: max(c.Shards, 1)}}}
		epoch, err := l.create(try, js, config)
		if err == nil { // the first stream comes last, so that there are all if it is there
			head := l.settings(config, 0, 0)
			head.Metadata[EpochKey] = epoch
			l.note(head.Metadata)
			_, err = js.CreateStream(try, head)
		}
		return l, false, refusal(err, fmt.Sprintf("Replicas %d, MaxAge %v, MaxBytes %d, Window %v",
			config.Replicas, config.MaxAge, config.MaxBytes, config.Duplicates))
	case !restoring:
		if err = Restore(ctx, js.Conn(), c); err != nil {
			return l, false, err
		}
	}
	end, cancelEnd := context.WithTimeout(ctx, RequestTimeout) // a restore takes its time
	defer cancelEnd()
	if err = EndEra(end, js, c.Name, c.Shards); err != nil {
		return l, false, err
	}
	if stream, err = js.Stream(end, c.Name); err != nil {
		return l, false, err
	}
	if l, err = layoutOf(c.Name, stream.CachedInfo().Config.Metadata); err != nil {
		return l, false, err
	}
	return l, false, l.apply(end, js, &c, log)
}

// apply changes all streams to what is set in c.
func (l Layout) apply(ctx context.Context, js jetstream.JetStream, c *Config, log *slog.Logger) error {
	one := func(name string, _, _ int) error {
		stream, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("%w: %s does not exist, and is one of the streams of %s", ErrStream, name, l.Name)
		}
		if err != nil {
			return err
		}
		return c.apply(ctx, js, stream.CachedInfo().Config, log)
	}
	if err := one(l.Name, 0, 0); err != nil {
		return err
	}
	return l.others(one)
}

// Sleep waits for a time. It reports whether that has passed, and not ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
