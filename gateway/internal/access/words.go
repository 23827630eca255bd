package access

import (
	"slices"
	"strings"

	"github.com/socknotify/socknotify/gateway/internal/event"
)

// A WordConfig has the options of the topics with one first word, as gateway.TopicConfig says.
type WordConfig struct {
	NoHistory   bool
	Presence    *bool
	Read, Write []string
}

// words has those of the words that have options.
type words map[string]WordConfig

// of returns the options of the topics that a filter may match: of one word, or of all of them if the
// first word of the filter is a wildcard.
func (w words) of(filter string) (all []WordConfig) {
	if of, ok := event.PresenceOf(filter); ok {
		filter = of
	}
	first, _, _ := strings.Cut(filter, ".")
	if c, ok := w[first]; ok {
		return []WordConfig{c}
	}
	if first == "*" || first == ">" {
		for word, c := range w {
			if !event.IsLive(word) { // for which no such wildcard stands
				all = append(all, c)
			}
		}
	}
	return all
}

// MayRead reports whether a user may subscribe to a filter, as far as the options say.
func (w words) mayRead(user, filter string) bool {
	return !slices.ContainsFunc(w.of(filter), func(c WordConfig) bool { return !names(c.Read, user) })
}

func (w words) mayWrite(user, topic string) bool {
	return !slices.ContainsFunc(w.of(topic), func(c WordConfig) bool { return !names(c.Write, user) })
}

// names reports whether a list, if there is one, has a user, or all that have a name.
func names(list []string, user string) bool {
	return list == nil || user != "" && (slices.Contains(list, user) || slices.Contains(list, "*"))
}

// HasHistory reports whether a client that comes back gets what is stored of a filter.
func (c *Control) HasHistory(filter string) bool {
	return !slices.ContainsFunc(c.Config.Words.of(filter), func(w WordConfig) bool { return w.NoHistory })
}

// HasPresence reports whether a topic has presence. known is what is configured for all topics.
func (c *Control) HasPresence(topic string, known bool) bool {
	for _, w := range c.Config.Words.of(topic) {
		if w.Presence != nil {
			return *w.Presence
		}
	}
	return known
}

// MayRead reports whether a client may subscribe to a filter.
func (c *Control) MayRead(rights *Rights, user, filter string) bool {
	return rights.MayRead(filter) && c.Config.Words.mayRead(user, filter)
}
