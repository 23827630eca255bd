package gateway

import (
	"context"

	"github.com/socknotify/socknotify/gateway/internal/stream"
)

// A Receipt is the answer to a publish.
type Receipt struct {
	// ID is the event's id. It is empty for live topics, whose events are not stored.
	ID string `json:"id,omitempty"`
	// Duplicate reports that an event with the same key was stored before; ID is that event's.
	Duplicate bool `json:"duplicate,omitempty"`
}

// The errors of Publish, beside those of NATS.
var (
	// ErrInvalid is returned for a topic that is not one, and for data that is not UTF-8.
	// errors.Is(ErrInvalid, socknotify.ErrInvalid) is true.
	ErrInvalid = stream.ErrInvalid
	// ErrTooLong is returned for data that is larger than Config.MaxMessage.
	ErrTooLong = stream.ErrTooLong
	// ErrKeyReused is returned if the event that was stored with the same key has other data.
	ErrKeyReused = stream.ErrKeyReused
	// ErrUnavailable is returned if JetStream has not acknowledged an event: there is no quorum, or no room. The event may
	// have been stored nevertheless. A publisher that repeats it with the same key gets it stored once.
	ErrUnavailable = stream.ErrUnavailable
)

// Publish publishes an event. For a durable topic it returns when JetStream has acknowledged that the event is stored, on a
// majority of the replicas. If key is not empty, a second event with the same key within Config.Window is not stored. For a
// live topic it returns when the event was handed to NATS, and key has no meaning.
func (g *Gateway) Publish(ctx context.Context, topic string, data []byte, key string) (Receipt, error) {
	r, err := g.publisher.Publish(ctx, topic, data, key)
	return Receipt(r), err
}
