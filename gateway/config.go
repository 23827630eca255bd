package gateway

import (
	"cmp"
	"compress/flate"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	streams "github.com/socknotify/socknotify/stream"

	"github.com/nats-io/nats.go"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/stream"
	"github.com/socknotify/socknotify/gateway/internal/webhook"
)

// A SlowPolicy says what happens to a client whose queue is full.
type SlowPolicy = streams.SlowPolicy

const (
	// SlowClose closes the connection. The client comes back with the last id that it has got, and
	// misses nothing of durable topics.
	SlowClose = streams.SlowClose
	// SlowDrop drops events until there is room, and then tells the client that there is a gap.
	SlowDrop = streams.SlowDrop
)

// A Rate limits how often something may happen: PerSecond times on average, and Burst times at
// once. A Burst of 0 means PerSecond.
type Rate = access.Rate

// Config configures a [Gateway]. Conn is required. The zero value of another field is its default,
// and a negative number means none, but for those of Stream.
type Config struct {
	// Conn is a connection to NATS with JetStream, such as that of a [Node]. The Gateway does not
	// close it.
	Conn *nats.Conn
	// Stream describes the streams of the durable topics. They are made if they do not exist.
	Stream StreamConfig
	// StoreError, if not nil, reports why no event can be stored now, such as [Node.StoreError].
	// Publish fails with that for durable topics, instead of waiting for JetStream.
	StoreError func() error
	// Authorize says what the sender of a request may do. nil allows everything. It may be called
	// concurrently. For a connection that gets a new token it is called with a request for /socket
	// that has that token in the header Authorization, and nothing else.
	Authorize func(*http.Request) (Grant, error)
	// Origins are the origins, such as https://example.org, whose pages may use the gateway from
	// browsers, besides the gateway's own. "*" allows all, without cookies.
	Origins []string
	// PublishOrigins are the origins whose pages may publish, besides the gateway's own. nil is
	// Origins. "*" allows all that send a token in the header Authorization, or need none: a
	// request with a cookie publishes only from the gateway's own origin or a listed one.
	PublishOrigins []string
	// Presence are the topics, or filters with wildcards, of which it is known who is there. There
	// are none by default.
	Presence []string
	// Topics has options of the topics with a first word, by that word. They limit what grants allow.
	Topics map[string]TopicConfig
	// Mercure enables Mercure's protocol. It needs Authorize. nil is none.
	Mercure *MercureConfig
	// Webhooks are asked before clients may do something. There are none by default.
	Webhooks Webhooks
	// Hosts are the names under which clients reach the gateway, such as push.example.org; IP
	// addresses and localhost are always allowed. Requests for another host get the status 421. If
	// there are none, all names are allowed, except for a gateway without Authorize on a loopback
	// address: any page could use that one from a browser on the same machine, by a name of its own
	// that stands for the address. "*" allows all names.
	Hosts []string
	// MaxConns bounds the clients of this node, and AcceptRate those that are accepted in a second.
	// Others are answered with the status 503. 0 is no limit.
	MaxConns   int
	AcceptRate Rate
	// MaxConnsPerUser bounds the connections of a client to this node: further ones get the status
	// 429. A client is known as for the rates below. 0 is no limit.
	MaxConnsPerUser int
	// PublishRate, SubscribeRate and MessageRate limit each client: the events that it publishes,
	// its requests to subscribe, and the messages that it sends over WebSockets. The zero value is
	// no limit. A client is the Subject of its Grant, or else its address; of IPv6, the network of
	// 64 bits. Beyond the first two it gets the status 429, and beyond the third its WebSocket is
	// closed.
	PublishRate, SubscribeRate, MessageRate Rate
	// MaxMessage bounds the bytes of an event: Publish fails with ErrTooLong. 0 is 256 KiB; without
	// a limit of its own the gateway takes what NATS takes.
	MaxMessage int
	// MaxQueued bounds the bytes that wait for a client that reads too slowly, 0 is 256 KiB.
	// SlowPolicy says what happens then; the default is SlowClose.
	MaxQueued  int
	SlowPolicy SlowPolicy
	// Compression is the level, 1 to 9, with which events and answers are compressed for WebSockets
	// whose clients offer permessage-deflate, and CompressMin the length in bytes from which on
	// they are, as in websocket.Server. 0 is no compression, and 512 bytes. An event is compressed
	// once for all clients of the node. A client's messages may be compressed too. An event must
	// not have both a secret and data that others choose: its length shows whether they are alike.
	Compression, CompressMin int
	// WriteTimeout bounds the time for which a slow client takes nothing, and for which a WebSocket
	// does not answer a ping. 0 is 10 seconds.
	WriteTimeout time.Duration
	// Heartbeat is the time after which a silent connection gets a few bytes, and after which a
	// long poll is answered. 0 is 25 seconds.
	Heartbeat time.Duration
	// Retry is the time after which clients come back, on average. 0 is 3 seconds. Each gets a
	// value of its own around it.
	Retry time.Duration
	// Name is as in park.Config. The empty string is "push".
	Name string
	// Logger is nil for slog.Default. No query and no token is logged.
	Logger *slog.Logger

	now func() time.Time // of the rates of clients, for tests; nil is time.Now
}

// prepare checks the fields and sets the defaults.
func (c *Config) prepare() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("gateway: %w: %s", socknotify.ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch s := c.Stream; {
	case c.Conn == nil:
		return invalid("Conn is nil")
	case !c.SlowPolicy.Valid():
		return invalid("SlowPolicy is unknown")
	case s.Shards < 0 || s.Shards > MaxShards:
		return invalid("Stream.Shards is %d, want at most %d", s.Shards, MaxShards)
	case s.Replicas < 0 || s.MaxAge < 0 || s.MaxBytes < 0 || s.Window < 0:
		return invalid("a number of Stream is negative")
	case s.MaxAge > 0 && s.Window > s.MaxAge:
		return invalid("Stream.Window is %v, longer than Stream.MaxAge, %v", s.Window, s.MaxAge)
	}
	if err := c.check(invalid); err != nil {
		return err
	}
	largest := int(c.Conn.MaxPayload()) - stream.MaxHeaders
	if c.MaxMessage < 0 {
		c.MaxMessage = largest
	}
	c.MaxMessage = cmp.Or(c.MaxMessage, 256<<10)
	if c.MaxMessage > largest {
		return invalid("MaxMessage is %d; NATS takes at most %d bytes with headers", c.MaxMessage, c.Conn.MaxPayload())
	}
	c.MaxQueued = cmp.Or(c.MaxQueued, 256<<10)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 10*time.Second)
	c.Heartbeat = cmp.Or(c.Heartbeat, 25*time.Second)
	c.Retry = cmp.Or(c.Retry, defaultRetry)
	c.Name = cmp.Or(c.Name, "push")
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.PublishOrigins == nil {
		c.PublishOrigins = c.Origins
	}
	return nil
}

// check checks the rates, the level of compression and the topics.
func (c *Config) check(invalid func(format string, args ...any) error) error {
	for name, r := range map[string]Rate{"AcceptRate": c.AcceptRate, "PublishRate": c.PublishRate,
		"SubscribeRate": c.SubscribeRate, "MessageRate": c.MessageRate} {
		if r.Burst < 0 || r.Burst > 0 && r.PerSecond <= 0 {
			return invalid("%s has a Burst of %d and a PerSecond of %d", name, r.Burst, r.PerSecond)
		}
	}
	if c.Compression > flate.BestCompression {
		return invalid("Compression is %d, want at most %d", c.Compression, flate.BestCompression)
	}
	if c.Mercure != nil && c.Authorize == nil {
		return invalid("Mercure needs Authorize, because everyone could read what is private")
	}
	hooks := webhook.Config(c.Webhooks)
	if err := hooks.Check(); err != nil {
		return invalid("Webhooks: %v", err)
	}
	for _, t := range c.Presence {
		if err := event.CheckTopic(t, true); err != nil {
			return invalid("Presence: %v", err)
		}
	}
	for word := range c.Topics {
		if err := event.CheckTopic(word, false); err != nil || strings.Contains(word, ".") {
			return invalid("Topics: %q is not the first word of a topic", word)
		}
	}
	return nil
}

// A TopicConfig has options of the topics with a first word. They are for clients of HTTP, and neither for
// Publish nor for Mercure. A filter that begins with a wildcard needs what all words allow. JetStream
// keeps all topics of a stream for the same time, so there is no retention here.
type TopicConfig struct {
	// NoHistory gives clients no event that was stored before they came. One that comes back with an id
	// is told of a gap.
	NoHistory bool
	// Presence, if not nil, says whether it is known who is there, instead of Config.Presence.
	Presence *bool
	// Read and Write, if not nil, are the only users, the subjects of their grants, who may subscribe
	// and publish. "*" is every user with a name.
	Read, Write []string
}

// hasPresence reports whether some topics may have presence.
func (c *Config) hasPresence() bool {
	for _, t := range c.Topics {
		if t.Presence != nil && *t.Presence {
			return true
		}
	}
	return len(c.Presence) > 0
}

const defaultRetry = 3 * time.Second

// access returns the fields that say who may do what.
func (c *Config) access() access.Config {
	a := access.Config{Origins: c.Origins, PublishOrigins: c.PublishOrigins, Hosts: c.Hosts, MaxConns: c.MaxConns,
		AcceptRate: c.AcceptRate, PublishRate: c.PublishRate, SubscribeRate: c.SubscribeRate,
		MaxConnsPerUser: c.MaxConnsPerUser, Words: make(map[string]access.WordConfig), MessageRate: c.MessageRate, MaxMessage: c.MaxMessage, Retry: c.Retry, Webhooks: webhook.Config(c.Webhooks),
		Name: c.Name, Logger: c.Logger, Now: c.now}
	for word, t := range c.Topics {
		a.Words[word] = access.WordConfig(t)
	}
	if c.Authorize != nil {
		a.Authorize = func(r *http.Request) (access.Grant, error) {
			g, err := c.Authorize(r)
			return grantOf(g), err
		}
	}
	return a
}
