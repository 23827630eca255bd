package sse

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/socknotify/socknotify"
)

// An Event is what EventSource gives to a page. One that has nothing but Retry is not given to the
// page; any other is, also with empty Data.
type Event struct {
	// ID is what the client sends as Last-Event-ID when it comes back, until there is another one.
	// It must have no line break and no NUL. The empty string leaves the client's as it is.
	ID string
	// Name is the type of the event in the page; the empty string is "message". It must have no
	// line break.
	Name string
	// Data may have several lines. A page gets each line break, of whatever kind, as a newline.
	Data string
	// Retry is the time after which the client comes back when it has lost its connection, in whole
	// milliseconds. 0 leaves it as it is.
	Retry time.Duration
}

// Append appends the bytes of an event to b. It fails with socknotify.ErrInvalid for an ID or a
// Name that could forge another field, and for a negative Retry.
func Append(b []byte, e Event) ([]byte, error) {
	switch {
	case strings.ContainsAny(e.ID, "\r\n\x00"):
		return b, fmt.Errorf("sse: %w: ID with a line break or NUL", socknotify.ErrInvalid)
	case strings.ContainsAny(e.Name, "\r\n"):
		return b, fmt.Errorf("sse: %w: Name with a line break", socknotify.ErrInvalid)
	case e.Retry < 0:
		return b, fmt.Errorf("sse: %w: negative Retry", socknotify.ErrInvalid)
	}
	if e.Retry > 0 {
		b = strconv.AppendInt(append(b, "retry: "...), e.Retry.Milliseconds(), 10)
		b = append(b, '\n')
		if e == (Event{Retry: e.Retry}) {
			return append(b, '\n'), nil
		}
	}
	if e.ID != "" {
		b = appendField(b, "id: ", e.ID)
	}
	if e.Name != "" {
		b = appendField(b, "event: ", e.Name)
	}
	for data := e.Data; ; {
		end := strings.IndexAny(data, "\r\n")
		if end < 0 {
			return append(appendField(b, "data: ", data), '\n'), nil
		}
		b = appendField(b, "data: ", data[:end])
		if strings.HasPrefix(data[end:], "\r\n") {
			end++
		}
		data = data[end+1:]
	}
}

func appendField(b []byte, name, value string) []byte {
	return append(append(append(b, name...), value...), '\n')
}

// A Prepared is an event for many clients. Its bytes are made once, and their queues share them. It
// may be used any number of times and concurrently.
type Prepared struct{ b []byte }

// Prepare prepares an event. Its errors are those of Append.
func Prepare(e Event) (*Prepared, error) {
	b, err := Append(nil, e)
	if err != nil {
		return nil, err
	}
	return &Prepared{b}, nil
}
