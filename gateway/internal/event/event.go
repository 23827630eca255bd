package event

import (
	"encoding/json"
	"sync"

	"github.com/socknotify/socknotify/sse"
	"github.com/socknotify/socknotify/websocket"
)

// An Event is one message of a topic. It is shared by all clients that get it: each form on the wire is made once, when the
// first client needs it, and must not be changed.
type Event struct {
	Topic string
	Data  []byte
	At    Position // in the shard that has it; without sequence for live topics
	// Wide, if not nil, is the position after the event in all shards that the feed reads, of which
	// Shard has the event. It is the event's id then.
	Wide  *Position
	Shard int

	forms [formCount]struct {
		once sync.Once
		b    []byte
		id   int // bytes of the line with the id, at the beginning of b
	}
	frame, tagged frame
}

// A frame is an event for WebSockets.
type frame struct {
	once sync.Once
	p    *websocket.Prepared
}

// A Form is a way to write an event.
type Form uint8

const (
	FormText     Form = iota // Server-Sent Events; data is the event's data
	FormEnvelope             // Server-Sent Events; data is the JSON of formJSON
	formJSON                 // an object with topic, id and data
	formTagged               // that of Tagged
	formCount
)

// Envelope is the JSON form of an event, for WebSocket, long polling and format=json.
type Envelope struct {
	Topic string `json:"topic"`
	ID    string `json:"id,omitempty"` // none for live topics
	Data  string `json:"data"`
	For   string `json:"for,omitempty"` // the filter, if that was added to an open connection
}

func (e *Event) Envelope() Envelope {
	return Envelope{Topic: e.Topic, ID: e.id(), Data: string(e.Data)}
}

// Position returns that of a client that has the event, and all that came before it.
func (e *Event) Position() Position {
	if e.Wide != nil {
		return *e.Wide
	}
	return e.At
}

// id returns the event's id.
func (e *Event) id() string {
	if e.Wide == nil {
		return e.At.String()
	}
	return string(e.Wide.appendPlaces(append([]byte(e.Wide.Epoch), '-'), e.Shard))
}

// For returns the event as a client gets it whose position in the shards is its own.
func (e *Event) For(at Position) *Event {
	return &Event{Topic: e.Topic, Data: e.Data, At: e.At, Wide: &at, Shard: e.Shard}
}

// Bytes returns the event in one form.
func (e *Event) Bytes(f Form) []byte {
	x := &e.forms[f]
	x.once.Do(func() {
		switch f {
		case formJSON:
			x.b = Encode(e.Envelope())
			return
		case FormText, FormEnvelope:
			if e.At.Seq > 0 {
				x.b = append(e.Position().Append([]byte("id: ")), '\n')
				x.id = len(x.b)
			}
		}
		data := e.Data
		if f != FormText {
			data = e.Bytes(formJSON)
		}
		x.b, _ = sse.Append(x.b, sse.Event{Data: string(data)})
	})
	return x.b
}

// Body returns the event in a form of Server-Sent Events, without its id.
func (e *Event) Body(f Form) []byte {
	b := e.Bytes(f)
	return b[e.forms[f].id:]
}

// Prepared returns the event as a frame.
func (e *Event) Prepared(s *websocket.Server) *websocket.Prepared {
	e.frame.once.Do(func() { e.frame.prepare(s, e.Bytes(formJSON)) })
	return e.frame.p
}

func (f *frame) prepare(s *websocket.Server, b []byte) {
	p, err := s.Prepare(websocket.Text, b)
	if err != nil {
		panic(err) // JSON is UTF-8
	}
	f.p = p
}

// Tagged returns the event as Server-Sent Events without an id, with the filter of the feed that it
// is of.
func (e *Event) Tagged(filter string) []byte {
	x := &e.forms[formTagged]
	x.once.Do(func() { x.b, _ = sse.Append(nil, sse.Event{Data: string(e.tag(filter))}) })
	return x.b
}

// PreparedFor is Tagged as a frame.
func (e *Event) PreparedFor(s *websocket.Server, filter string) *websocket.Prepared {
	e.tagged.once.Do(func() { e.tagged.prepare(s, e.tag(filter)) })
	return e.tagged.p
}

func (e *Event) tag(filter string) []byte {
	v := e.Envelope()
	v.For = filter
	return Encode(v)
}

func Encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	return b
}
