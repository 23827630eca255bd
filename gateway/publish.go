package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/socknotify/socknotify"
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
	ErrInvalid = fmt.Errorf("gateway: invalid event: %w", socknotify.ErrInvalid)
	// ErrTooLong is returned for data that is larger than Config.MaxMessage.
	ErrTooLong = errors.New("gateway: the event is too long")
	// ErrKeyReused is returned if the event that was stored with the same key has other data.
	ErrKeyReused = errors.New("gateway: the key was used for an event with other data")
	// ErrUnavailable is returned if JetStream has not acknowledged an event: there is no quorum, or no room. The event may
	// have been stored nevertheless. A publisher that repeats it with the same key gets it stored once.
	ErrUnavailable = errors.New("gateway: the event was not acknowledged")
)

// exceedsMaximum is JetStream's code for an event that is larger than the stream allows.
const exceedsMaximum = 10054

// bodyTimeout bounds the time that a publisher takes to send an event, so that one that has stopped does not keep a goroutine.
var bodyTimeout = 30 * time.Second

// Publish publishes an event. For a durable topic it returns when JetStream has acknowledged that the event is stored, on a
// majority of the replicas. If key is not empty, a second event with the same key within Config.Window is not stored. For a
// live topic it returns when the event was handed to NATS, and key has no meaning.
func (g *Gateway) Publish(ctx context.Context, topic string, data []byte, key string) (Receipt, error) {
	switch err := checkTopic(topic, false); {
	case err != nil:
		return Receipt{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	case !utf8.Valid(data):
		return Receipt{}, fmt.Errorf("%w: data is not UTF-8", ErrInvalid)
	case len(data) > g.config.MaxMessage:
		return Receipt{}, ErrTooLong
	case len(key) > maxTopic:
		return Receipt{}, fmt.Errorf("%w: the key has more than %d bytes", ErrInvalid, maxTopic)
	}
	if isLive(topic) {
		if err := g.conn.Publish(livePrefix+topic, data); err != nil {
			return Receipt{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		g.hub.count.published.Add(1)
		return Receipt{}, nil
	}
	receipt, err := g.store(ctx, topic, data, key)
	if err == nil {
		g.hub.count.published.Add(1)
	}
	return receipt, err
}

// store stores an event of a durable topic.
func (g *Gateway) store(ctx context.Context, topic string, data []byte, key string) (
	Receipt, error) {
	if g.config.StoreError != nil {
		if err := g.config.StoreError(); err != nil {
			return Receipt{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var opts []jetstream.PublishOpt
	if key != "" {
		opts = append(opts, jetstream.WithMsgID(topic+" "+key)) // keys of different topics are different
	}
	opts = append(opts, jetstream.WithExpectStream(g.hub.history.name), jetstream.WithRetryAttempts(0))
	ack, err := g.js.PublishMsg(ctx, &nats.Msg{Subject: storedPrefix + topic, Data: data}, opts...)
	var refused *jetstream.APIError
	if errors.As(err, &refused) && refused.ErrorCode == exceedsMaximum {
		return Receipt{}, ErrTooLong // the stream was made with a smaller limit
	}
	if err != nil {
		return Receipt{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if ack.Duplicate && !g.hub.history.has(ctx, ack.Sequence, data) {
		return Receipt{}, ErrKeyReused
	}
	return Receipt{position{g.hub.epoch, ack.Sequence}.String(), ack.Duplicate}, nil
}

// permit returns why a client may not publish to a topic now, or nil.
func (g *Gateway) permit(write []string, topic, client string) *denial {
	if err := checkTopic(topic, false); err != nil {
		return &denial{status: http.StatusBadRequest, text: err.Error()}
	}
	if !allows(write, topic) {
		return notAllowed(topic)
	}
	if wait := g.publishing.take(client); wait > 0 {
		return &denial{http.StatusTooManyRequests, errRate.Error(), wait}
	}
	return nil
}

// denialOf returns the answer to a client whose event Publish has refused with an error.
func denialOf(err error) *denial {
	switch {
	case errors.Is(err, ErrTooLong), errors.As(err, new(*http.MaxBytesError)):
		return &denial{status: http.StatusRequestEntityTooLarge, text: ErrTooLong.Error()}
	case errors.Is(err, ErrKeyReused):
		return &denial{status: http.StatusUnprocessableEntity, text: err.Error()}
	case errors.Is(err, ErrUnavailable):
		return &denial{http.StatusServiceUnavailable, err.Error(), time.Second}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &denial{status: http.StatusRequestTimeout, text: "the event did not come in time"}
	default:
		return &denial{status: http.StatusBadRequest, text: err.Error()}
	}
}

// authorizeWriter returns what a client may do that publishes or gives orders. If its origin or its
// token is refused, authorizeWriter answers, and ok is false.
func (g *Gateway) authorizeWriter(w http.ResponseWriter, r *http.Request) (grant Grant, ok bool) {
	allowOrigin(w, r, g.config.PublishOrigins)
	if !g.config.mayPublish(r) {
		g.refuse(w, r, &denial{status: http.StatusForbidden, text: "this origin may not publish"})
		return grant, false
	}
	return g.authorize(w, r)
}

// readBody reads the body of a publisher's request, of at most so many bytes and for bodyTimeout.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, *denial) {
	if r.ContentLength > most {
		w.Header().Set("Connection", "close") // so that the body is not waited for
		return nil, denialOf(ErrTooLong)
	}
	body := http.NewResponseController(w)
	body.SetReadDeadline(time.Now().Add(bodyTimeout)) // not every http.ResponseWriter has one
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		f := denialOf(err)
		if f.status == http.StatusRequestTimeout {
			w.Header().Set("Connection", "close")
		}
		return nil, f
	}
	body.SetReadDeadline(time.Time{}) // only now, because net/http would wait for the rest of the body
	return data, nil
}

// servePublish answers a POST: the body is the event's data, the parameter topic its topic, the header Idempotency-Key its
// key.
func (g *Gateway) servePublish(w http.ResponseWriter, r *http.Request) {
	grant, ok := g.authorizeWriter(w, r)
	if !ok {
		return
	}
	topic := r.URL.Query().Get("topic")
	if f := g.permit(grant.Write, topic, g.keyOf(grant.Subject, r.RemoteAddr)); f != nil {
		g.refuse(w, r, f)
		return
	}
	data, f := readBody(w, r, int64(g.config.MaxMessage))
	if f != nil {
		g.refuse(w, r, f)
		return
	}
	from := newHookRequest("", "http", grant.Subject)
	receipt, f := g.publishFor(r.Context(), from, topic, data, r.Header.Get("Idempotency-Key"))
	if f != nil {
		g.refuse(w, r, f)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if receipt.ID == "" {
		w.WriteHeader(http.StatusAccepted)
	}
	w.Write(append(encode(receipt), '\n'))
}
