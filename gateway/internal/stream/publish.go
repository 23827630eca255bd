package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/gateway/internal/event"
)

// A Receipt is the answer to a publish, as gateway.Receipt is.
type Receipt struct {
	ID        string `json:"id,omitempty"`
	Duplicate bool   `json:"duplicate,omitempty"`
}

// The errors of publish, beside those of NATS. They are those of package gateway.
var (
	ErrInvalid     = fmt.Errorf("gateway: invalid event: %w", socknotify.ErrInvalid)
	ErrTooLong     = errors.New("gateway: the event is too long")
	ErrKeyReused   = errors.New("gateway: the key was used for an event with other data")
	ErrUnavailable = errors.New("gateway: the event was not acknowledged")
)

// exceedsMaximum is JetStream's code for an event that is larger than the stream allows.
const exceedsMaximum = 10054

// A Publisher publishes events to the topics of a stream, and to live topics.
type Publisher struct {
	conn       *nats.Conn
	shards     []*History
	js         jetstream.JetStream
	epoch      string       // of the stream
	maxMessage int          // bytes of an event
	storeError func() error // why no event can be stored now; nil if that is not known
	Published  atomic.Uint64
}

// NewPublisher returns a publisher to the streams of the shards, whose epoch is given.
func NewPublisher(conn *nats.Conn, shards []*History, epoch string, maxMessage int, storeError func() error) (*Publisher, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	return &Publisher{conn: conn, shards: shards, js: js, epoch: epoch, maxMessage: maxMessage, storeError: storeError}, nil
}

// Forward gives what programs publish on NATS, below the prefix that does not name a shard, to the
// shard of its topic, until ctx is done. That has its own answer for the program. One node does it for
// each event, which NATS chooses: that of the program's server, if there is one.
func (p *Publisher) Forward(ctx context.Context, work *sync.WaitGroup) error {
	if len(p.shards) < 2 {
		return nil // the stream takes it
	}
	sub, err := p.conn.QueueSubscribe(event.StoredPrefix+">", forwarders, func(m *nats.Msg) {
		topic := strings.TrimPrefix(m.Subject, event.StoredPrefix)
		to := p.shards[event.ShardOf(topic, len(p.shards))].Subject(topic)
		p.conn.PublishMsg(&nats.Msg{Subject: to, Reply: m.Reply, Header: m.Header, Data: m.Data})
	})
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	work.Go(func() {
		<-ctx.Done()
		sub.Unsubscribe()
	})
	return nil
}

// forwarders is the group of nodes of which one forwards an event.
const forwarders = "push"

// Publish publishes an event, as Gateway.Publish says.
func (p *Publisher) Publish(ctx context.Context, topic string, data []byte, key string) (Receipt, error) {
	switch err := event.CheckTopic(topic, false); {
	case err != nil:
		return Receipt{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	case !utf8.Valid(data):
		return Receipt{}, fmt.Errorf("%w: data is not UTF-8", ErrInvalid)
	case len(data) > p.maxMessage:
		return Receipt{}, ErrTooLong
	case len(key) > event.MaxTopic:
		return Receipt{}, fmt.Errorf("%w: the key has more than %d bytes", ErrInvalid, event.MaxTopic)
	}
	if event.IsLive(topic) {
		if err := p.conn.Publish(event.LivePrefix+topic, data); err != nil {
			return Receipt{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		p.Published.Add(1)
		return Receipt{}, nil
	}
	r, err := p.Store(ctx, topic, data, key)
	if err == nil {
		p.Published.Add(1)
	}
	return r, err
}

// Store stores an event of a durable topic.
func (p *Publisher) Store(ctx context.Context, topic string, data []byte, key string) (Receipt, error) {
	if p.storeError != nil {
		if err := p.storeError(); err != nil {
			return Receipt{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	shard := p.shards[event.ShardOf(topic, len(p.shards))]
	var opts []jetstream.PublishOpt
	if key != "" {
		opts = append(opts, jetstream.WithMsgID(topic+" "+key)) // keys of different topics are different
	}
	opts = append(opts, jetstream.WithExpectStream(shard.name), jetstream.WithRetryAttempts(0))
	ack, err := p.js.PublishMsg(ctx, &nats.Msg{Subject: shard.Subject(topic), Data: data}, opts...)
	var refused *jetstream.APIError
	if errors.As(err, &refused) && refused.ErrorCode == exceedsMaximum {
		return Receipt{}, ErrTooLong // the stream was made with a smaller limit
	}
	if err != nil {
		return Receipt{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if ack.Duplicate && !shard.has(ctx, ack.Sequence, data) {
		return Receipt{}, ErrKeyReused
	}
	return Receipt{event.Position{Epoch: p.epoch, Seq: ack.Sequence}.String(), ack.Duplicate}, nil
}
