package event

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Topics are NATS subjects below one of three prefixes. Durable topics are published below stored, and the stream
// republishes them below republished once they are stored. No node subscribes below stored, because such a subscription is
// served before the event is stored. The other two have the same length.
const (
	StoredPrefix      = "push.d."
	RepublishedPrefix = "push.r."
	LivePrefix        = "push.l."
)

// Topics whose first word begins with $ are the gateway's own. No wildcard stands for them.
// controlTopic is a durable one, with the orders of serveControl. Those of presence are live.
const ControlTopic = "$control"

// mercureTopic is a durable topic with all updates of Mercure, whatever their topics are. Below
// mercureIDPrefix are records that find an update by an id that its publisher has chosen: the last
// word is a hash of the id. So no byte of a Mercure client is in a subject of NATS.
const (
	MercureTopic    = "$mercure"
	MercureIDPrefix = "$mercure-id."
)

// PresencePrefix is that of the live topics that say who joins and leaves a topic.
const PresencePrefix = "$presence."

// PresenceOf returns the topic whose presence a topic has.
func PresenceOf(topic string) (of string, ok bool) {
	return strings.CutPrefix(topic, PresencePrefix)
}

func IsReserved(topic string) bool { return topic[0] == '$' }

const (
	MaxTopic  = 256 // bytes of a topic
	MaxTopics = 64  // topics of one subscription
	liveWord  = "live"
)

// CheckTopic reports what is wrong with a topic, or with a filter, which may have wildcards.
func CheckTopic(topic string, filter bool) error {
	if topic == "" || len(topic) > MaxTopic || !utf8.ValidString(topic) {
		return fmt.Errorf("topic: want UTF-8 of 1 to %d bytes", MaxTopic)
	}
	if IsReserved(topic) {
		return fmt.Errorf("topic %q: topics that begin with $ are reserved", topic)
	}
	for rest, more := topic, true; more; {
		var word string
		word, rest, more = strings.Cut(rest, ".")
		switch {
		case word == "":
			return fmt.Errorf("topic %q: empty word", topic)
		case word == "*" && filter, word == ">" && filter && !more:
		case strings.ContainsAny(word, "*>"):
			return fmt.Errorf("topic %q: wildcard not allowed here", topic)
		case strings.IndexFunc(word, func(r rune) bool { return r <= ' ' || r == 0x7f }) >= 0:
			return fmt.Errorf("topic %q: space or control character", topic)
		}
	}
	return nil
}

// IsLive reports whether a topic is not stored. A filter whose first word is a wildcard stands for durable topics alone.
func IsLive(topic string) bool {
	first, _, _ := strings.Cut(topic, ".")
	return first == liveWord || strings.HasPrefix(topic, PresencePrefix)
}

func IsWild(filter string) bool {
	return filter == ">" || filter == "*" || strings.HasSuffix(filter, ".>") || strings.HasSuffix(filter, ".*") ||
		strings.HasPrefix(filter, "*.") || strings.Contains(filter, ".*.")
}

// Covers reports whether every topic that matches filter also matches pattern. If filter has no wildcards, that is whether
// it matches pattern.
func Covers(pattern, filter string) bool {
	if pattern == ">" || pattern == filter {
		return true
	}
	for {
		p, prest, pmore := strings.Cut(pattern, ".")
		f, frest, fmore := strings.Cut(filter, ".")
		switch {
		case p == ">":
			return true // a last word; filter has one more
		case f == ">", p != "*" && p != f:
			return false
		case !pmore || !fmore:
			return pmore == fmore
		}
		pattern, filter = prest, frest
	}
}

// Overlap reports whether a topic may match both filters, for clients.
func Overlap(a, b string) bool {
	if IsLive(a) != IsLive(b) || IsReserved(a) != IsReserved(b) {
		return false
	}
	for {
		x, arest, amore := strings.Cut(a, ".")
		y, brest, bmore := strings.Cut(b, ".")
		switch {
		case x == ">" || y == ">":
			return true // a last word; the other one has one more
		case x != y && x != "*" && y != "*":
			return false
		case !amore || !bmore:
			return amore == bmore
		}
		a, b = arest, brest
	}
}

// Allows reports whether one of the patterns of a grant covers filter. A pattern that begins with *
// stands for durable topics alone, as a filter does; the pattern > covers all topics.
func Allows(patterns []string, filter string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		return Covers(p, filter) && (p == ">" || IsLive(p) == IsLive(filter))
	})
}
