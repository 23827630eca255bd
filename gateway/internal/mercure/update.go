package mercure

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/sse"
)

// An update is what a publisher has sent. Stored, it is a line of JSON and the data.
type update struct {
	Topics  []string `json:"topics"`
	Private bool     `json:"private,omitempty"`
	ID      string   `json:"id,omitempty"` // that the publisher has chosen
	Type    string   `json:"type,omitempty"`
	Retry   int64    `json:"retry,omitempty"` // in milliseconds
	data    []byte
	at      event.Position
	seq     uint64

	ended, open []byte // block
}

// record returns what is stored of an update.
func (u *update) record() []byte { return append(append(event.Encode(u), '\n'), u.data...) }

// parseUpdate parses what record has returned.
func parseUpdate(e *event.Event) (u *update, ok bool) {
	head, data, ok := bytes.Cut(e.Data, []byte{'\n'})
	u = &update{data: data, at: e.At, seq: e.At.Seq}
	if !ok || json.Unmarshal(head, u) != nil {
		return nil, false
	}
	return u, true
}

// block returns the update as a block of Server-Sent Events. One with an id that its publisher has
// chosen is followed by its position, which is what the client comes back with. block is called by
// one goroutine at a time.
func (u *update) block(bare bool) []byte {
	b := &u.ended
	if bare {
		b = &u.open
	}
	if *b == nil {
		id := u.ID
		if id == "" {
			id = idOf(u.at)
		}
		e := sse.Event{ID: id, Name: u.Type, Data: string(u.data),
			Retry: time.Duration(u.Retry) * time.Millisecond}
		block, err := sse.Append(nil, e)
		if err != nil { // published past the checks of a gateway
			block = appendPosition(nil, u.at, bare)
		} else if u.ID != "" {
			block = appendPosition(block, u.at, bare)
		}
		*b = block
	}
	return *b
}
