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
	At    Position // without sequence for live topics

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

// A Form is a way to write an event.
type Form uint8

const (
	FormText     Form = iota // Server-Sent Events; data is the event's data
	FormEnvelope             // Server-Sent Events; data is the JSON of formJSON
	formJSON                 // an object with topic, id and data
	formCount
)

// Envelope is the JSON form of an event, for WebSocket, long polling and format=json.
type Envelope struct {
	Topic string `json:"topic"`
	ID    string `json:"id,omitempty"` // none for live topics
	Data  string `json:"data"`
}

func (e *Event) Envelope() Envelope { return Envelope{e.Topic, e.At.String(), string(e.Data)} }

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
				x.b = append(e.At.Append([]byte("id: ")), '\n')
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
	e.frame.once.Do(func() {
		p, err := s.Prepare(websocket.Text, e.Bytes(formJSON))
		if err != nil {
			panic(err) // JSON is UTF-8
		}
		e.frame.p = p
	})
	return e.frame.p
}

func Encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	return b
}
