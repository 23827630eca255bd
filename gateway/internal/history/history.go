// Package history has what a test of a cluster notes while it runs, in a file: what its publishers
// published and were answered, what its clients got and were told, and what was done to the
// nodes. [Check] reads such a file, and says what is wrong in it. It knows nothing of the gateway but
// what docs/gateway.md promises.
package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Record is a line of the file. It has one of its fields, beside At and Who.
type Record struct {
	At     int64   `json:"at"`            // nanoseconds since 1970
	Who    int     `json:"who,omitempty"` // the number of a client
	Client *Client `json:"client,omitempty"`
	Event  *Event  `json:"event,omitempty"`
	Gap    *Gap    `json:"gap,omitempty"`
	Wrong  string  `json:"wrong,omitempty"` // something that a client must not get
	Try    *Try    `json:"try,omitempty"`
	Era    *Era    `json:"era,omitempty"`
	Begin  string  `json:"begin,omitempty"` // the id after which all clients begin
	End    string  `json:"end,omitempty"`   // the id of the last event that counts
	Cut    *Cut    `json:"cut,omitempty"`
	Note   string  `json:"note,omitempty"` // for the reader
}

// A Client says who a client is. It is the first record of its number.
type Client struct {
	Name    string   `json:"name"`
	Filters []string `json:"filters"`
	Mercure bool     `json:"mercure,omitempty"` // its filters have one position, and match IRIs alone
	Partial bool     `json:"partial,omitempty"` // it is not told of gaps
}

// Owner returns the first filter that has a topic, or -1. All of Mercure's are one.
func (c *Client) Owner(topic string) int {
	if strings.Contains(topic, "://") != c.Mercure {
		return -1
	}
	i := slices.IndexFunc(c.Filters, func(f string) bool { return matches(f, topic) })
	if c.Mercure {
		return min(i, 0)
	}
	return i
}

// matches reports whether a filter has a topic. A wildcard is at its end.
func matches(filter, topic string) bool {
	prefix, wild := strings.CutSuffix(filter, "*")
	if !wild {
		prefix, wild = strings.CutSuffix(filter, "{id}")
	}
	return filter == topic || wild && strings.HasPrefix(topic, prefix)
}

// An Event is one that a client got.
type Event struct {
	Topic string `json:"topic"`
	ID    string `json:"id"`
	Data  string `json:"data"`
}

// A Gap is what a client was told that it does not get of a filter: the events after one and up to
// another.
type Gap struct {
	Topic string `json:"topic"`
	After string `json:"after"`
	Last  string `json:"last"`
}

// A Try is a request to publish an event, and its answer. At is when that came.
type Try struct {
	Topic  string `json:"topic"`
	Data   string `json:"data"`             // which also is its key
	N      int    `json:"n"`                // from 1, for each event
	Node   int    `json:"node"`             // that was asked
	Began  int64  `json:"began"`            // nanoseconds since 1970
	Status int    `json:"status,omitempty"` // 0 without an answer
	ID     string `json:"id,omitempty"`
}

// An Era is the time between two restores of the stream.
type Era struct {
	Epoch string `json:"epoch"`
	Base  uint64 `json:"base"` // the last sequence that it has of the era before
}

// A Cut says that a node is cut off from all others from now on, or that it is not any more.
type Cut struct {
	Node int  `json:"node"`
	Off  bool `json:"off"`
}

// Eras are in the order of time.
type Eras []Era

// A Place is where an event is: its sequence in the stream of an era.
type Place struct {
	Era int
	Seq uint64
}

// Before reports whether p comes before q.
func (p Place) Before(q Place) bool { return p.Era < q.Era || p.Era == q.Era && p.Seq < q.Seq }

// Split returns the era that an id names, or -1, and its sequence.
func (e Eras) Split(id string) (era int, seq uint64) {
	epoch, number, _ := strings.Cut(id, "-")
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return -1, 0
	}
	return slices.IndexFunc(e, func(e Era) bool { return e.Epoch == epoch }), seq
}

// Place returns where the event with an id is. What an era has of an earlier one is there.
func (e Eras) Place(id string) (Place, error) {
	era, seq := e.Split(id)
	if era < 0 {
		return Place{}, fmt.Errorf("a strange id: %q", id)
	}
	for era > 0 && seq <= e[era].Base {
		era--
	}
	return Place{era, seq}, nil
}

// in reports whether the stream of an era has, or has had, the event at a place.
func (e Eras) in(era int, at Place) bool {
	for i := at.Era + 1; i <= era; i++ {
		if at.Seq > e[i].Base {
			return false
		}
	}
	return at.Era <= era
}

// A span is a gap: its client has everything of the era from up to after, and gets everything of the
// era to after last.
type span struct {
	from, to    int
	after, last uint64
}

// span returns what a gap says.
func (e Eras) span(g *Gap) (s span, err error) {
	s.from, s.after = e.Split(g.After)
	s.to, s.last = e.Split(g.Last)
	if s.from < 0 || s.to < 0 {
		err = errors.New("a strange id")
	}
	return s, err
}

// covers reports whether a gap has the event at a place.
func (e Eras) covers(s span, at Place) bool {
	has, gets := e.in(s.from, at) && at.Seq <= s.after, e.in(s.to, at) && at.Seq > s.last
	if s.from == s.to {
		return e.in(s.to, at) && !has && !gets
	}
	return at.Era <= s.to && !has && !gets
}

// A Writer writes a history. Its methods may be called concurrently.
type Writer struct {
	mu   sync.Mutex
	file *os.File
	out  *bufio.Writer
	last int // the number of a client
	err  error
}

// Create makes a file.
func Create(name string) (*Writer, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	return &Writer{file: f, out: bufio.NewWriter(f)}, nil
}

// Join notes a client, and returns its number.
func (w *Writer) Join(c *Client) int {
	w.mu.Lock()
	w.last++
	who := w.last
	w.mu.Unlock()
	w.Add(Record{Who: who, Client: c})
	return who
}

// Add notes something that happens now.
func (w *Writer) Add(r Record) {
	r.At = time.Now().UnixNano()
	w.write(r)
}

func (w *Writer) write(r Record) {
	b, err := json.Marshal(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		_, err = w.out.Write(append(b, '\n'))
	}
	if w.err == nil {
		w.err = err
	}
}

// Close ends the file.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.out.Flush(); w.err == nil {
		w.err = err
	}
	if err := w.file.Close(); w.err == nil {
		w.err = err
	}
	return w.err
}
