package gateway

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// A cut is a place between two blocks of a stream: the id with which a client comes back, and what it has got.
type cut struct {
	id  string
	got []string
}

// A cutReader notes the stored events that it reads, which are those whose data begin with "stored", and the cuts.
type cutReader struct {
	*sseReader
	stored []string
	cuts   []cut
}

// read reads blocks until f is true after one. moved says that the block was one with a new id alone.
func (r *cutReader) read(t *testing.T, f func(moved bool) bool) {
	t.Helper()
	id, data := r.lastID, ""
	for {
		line, err := r.in.ReadString('\n')
		must(t, err)
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "id":
			id = value
		case "data":
			data = value
		case "":
			if strings.HasPrefix(data, "stored") {
				r.stored = append(r.stored, data)
			}
			moved := data == "" && id != r.lastID
			if r.lastID = id; id != "" {
				r.cuts = append(r.cuts, cut{id, slices.Clone(r.stored)})
			}
			if data = ""; f(moved) {
				return
			}
		}
	}
}

// Wherever a client is cut off, the id that it has skips no stored event and repeats none: also after heartbeats, events of
// presence and of live topics, and what the gateway tells of itself.
func TestIDsSkipNothing(t *testing.T) {
	setPresence(t, time.Hour, time.Second)
	s, _ := guarded(t, Config{Heartbeat: 5 * time.Millisecond, Presence: []string{"a"}, Mercure: mercureTestConfig().Mercure})
	m := mercureSite{s}
	token := mercureTestToken(t, 0, []string{"*"}, []string{"*"})
	q := "topic=a&topic=b&topic=live.x&topic=live.y&topic=$presence.a" + watcher(t, "carol", "a")
	r, err := openSSE(s.url, q, "")
	must(t, err)
	defer r.close()
	browser := []string{"User-Agent", "Mozilla/5.0"} // an EventSource, which has no header Authorization
	updates := query("a", "b") + "&authorization=" + token
	u := m.open(updates, browser...)
	m.joined(1)
	until(t, "it has joined", func() bool { return len(s.present("a", backendToken(t)...)) == 1 })
	readers := map[string]*cutReader{"events": {sseReader: r}, "Mercure": {sseReader: &u.sseReader}}
	both := func(topic, data string, more ...string) {
		s.publish(topic, data)
		m.update(token, topic, data, more...)
	}
	busy, err := openSSE(s.url, "topic=c&token="+user(t, "bob"), "") // what this node knows of the stream comes from its topics
	must(t, err)
	defer busy.close()
	both("a", "stored 1")
	both("live.x", "not stored")
	alice, err := openSSE(s.url, "topic=a&token="+user(t, "alice"), "") // is present
	must(t, err)
	both("b", "stored 2", "id", "urn:2")
	until(t, "alice is present", func() bool { return len(s.present("a", backendToken(t)...)) == 2 })
	alice.close()
	until(t, "alice has left", func() bool { return len(s.present("a", backendToken(t)...)) == 1 })
	for _, r := range readers {
		r.read(t, func(bool) bool { return len(r.stored) == 2 })
		both("c", "of another topic") // the next heartbeat has an id because of it
		r.read(t, func(moved bool) bool { return moved })
	}
	both("a", "stored 3")
	both("b", "stored 4", "private", "on")
	s.order("/unsubscribe", url.Values{"user": {"carol"}, "topic": {"live.y"}}, backendToken(t))
	other := m.open(query("b"), browser...) // its subscription is told as an update
	m.joined(2)
	other.close()
	m.joined(1)
	both("live.x", "not stored")
	both("a", "stored 5")
	const n = 5
	for name, again := range map[string]func(id string) (*sseReader, error){
		"events": func(id string) (*sseReader, error) { return openSSE(s.url, q, id) },
		"Mercure": func(id string) (*sseReader, error) {
			x, err := openMercure(s.url, updates, append(browser, "Last-Event-ID", id)...)
			if err != nil {
				return nil, err
			}
			return &x.sseReader, nil
		},
	} {
		first := readers[name]
		first.read(t, func(bool) bool { return len(first.stored) == n })
		tried := map[string]bool{}
		for _, at := range first.cuts {
			if tried[at.id] || len(at.got) == n {
				continue
			}
			tried[at.id] = true
			x, err := again(at.id)
			must(t, err)
			rest := &cutReader{sseReader: x, stored: at.got}
			rest.read(t, func(bool) bool { return len(rest.stored) == n })
			x.close()
			all := slices.Sorted(slices.Values(rest.stored)) // of each topic they are in order
			if want := []string{"stored 1", "stored 2", "stored 3", "stored 4", "stored 5"}; !slices.Equal(all, want) {
				t.Errorf("%s: after %s: %q, of which %d before that", name, at.id, rest.stored, len(at.got))
			}
		}
		if len(tried) < n {
			t.Errorf("%s: %d ids were tried", name, len(tried))
		}
	}
}
