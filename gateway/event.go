package gateway

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/socknotify/socknotify/sse"
	"github.com/socknotify/socknotify/websocket"
)

// An event is one message of a topic. It is shared by all clients that get it: each form on the wire is made once, when the
// first client needs it, and must not be changed.
type event struct {
	topic string
	data  []byte
	at    position // without sequence for live topics

	forms [formCount]struct {
		once sync.Once
		b    []byte
		id   int // bytes of the line with the id, at the beginning of b
	}
	frame struct {
		once sync.Once
		p    *websocket.Prepared
	}
}

// A form is a way to write an event.
type form uint8

const (
	formText     form = iota // Server-Sent Events; data is the event's data
	formEnvelope             // Server-Sent Events; data is the JSON of formJSON
	formJSON                 // an object with topic, id and data
	formCount
)

// envelope is the JSON form of an event, for WebSocket, long polling and format=json.
type envelope struct {
	Topic string `json:"topic"`
	ID    string `json:"id,omitempty"` // none for live topics
	Data  string `json:"data"`
}

func (e *event) envelope() envelope { return envelope{e.topic, e.at.String(), string(e.data)} }

// bytes returns the event in one form.
func (e *event) bytes(f form) []byte {
	x := &e.forms[f]
	x.once.Do(func() {
		switch f {
		case formJSON:
			x.b = encode(e.envelope())
			return
		case formText, formEnvelope:
			if e.at.seq > 0 {
				x.b = append(e.at.append([]byte("id: ")), '\n')
				x.id = len(x.b)
			}
		}
		data := e.data
		if f != formText {
			data = e.bytes(formJSON)
		}
		x.b, _ = sse.Append(x.b, sse.Event{Data: string(data)})
	})
	return x.b
}

// body returns the event in a form of Server-Sent Events, without its id.
func (e *event) body(f form) []byte {
	b := e.bytes(f)
	return b[e.forms[f].id:]
}

// prepared returns the event as a frame.
func (e *event) prepared(s *websocket.Server) *websocket.Prepared {
	e.frame.once.Do(func() {
		p, err := s.Prepare(websocket.Text, e.bytes(formJSON))
		if err != nil {
			panic(err) // JSON is UTF-8
		}
		e.frame.p = p
	})
	return e.frame.p
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	return b
}

// A position is a place in the stream: that of an event, or the last one that a client has seen. Its text is an event's id.
type position struct {
	epoch string // of the stream; another stream's sequences mean other events
	seq   uint64
}

func (p position) append(b []byte) []byte {
	return strconv.AppendUint(append(append(b, p.epoch...), '-'), p.seq, 10)
}

func (p position) String() string {
	if p.seq == 0 && p.epoch == "" || p.epoch == foreign {
		return ""
	}
	return string(p.append(nil))
}

// appendPositions appends the id of an event for a client of n topics: <epoch>-<sequence>.<sequence>…,
// with the position of each topic, in the order of the client's request. A live topic has the
// position 0.
func appendPositions(b []byte, epoch string, n int, at func(topic int) uint64) []byte {
	b = append(b, epoch...)
	separator := byte('-')
	for i := range n {
		b = strconv.AppendUint(append(b, separator), at(i), 10)
		separator = '.'
	}
	return b
}

// beginning is the id before the first event that the stream has, and the epoch of its position.
const beginning = "first"

// foreign is the epoch of the position that stands for an id of another server. No stream has it.
const foreign = "?"

// parsePositions parses an id, which has one position or several. The empty string is the zero position.
func parsePositions(id string) (all []position, err error) {
	switch id {
	case "":
		return []position{{}}, nil
	case beginning:
		return []position{{epoch: beginning}}, nil
	}
	epoch, numbers, ok := strings.Cut(id, "-")
	if !ok || epoch == "" || len(epoch) > 32 || strings.Count(numbers, ".") >= maxTopics {
		return nil, errID
	}
	epoch = strings.Clone(epoch) // a client must not keep its request in memory
	for number := range strings.SplitSeq(numbers, ".") {
		seq, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return nil, errID
		}
		all = append(all, position{epoch, seq})
	}
	return all, nil
}

var errID = errors.New("id: want <epoch>-<sequence>")
