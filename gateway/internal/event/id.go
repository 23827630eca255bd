package event

import (
	"errors"
	"strconv"
	"strings"
)

// A Position is a place in the stream: that of an event, or the last one that a client has seen. Its text is an event's id.
type Position struct {
	Epoch string // of the stream; another stream's sequences mean other events
	Seq   uint64
}

func (p Position) Append(b []byte) []byte {
	return strconv.AppendUint(append(append(b, p.Epoch...), '-'), p.Seq, 10)
}

func (p Position) String() string {
	if p.Seq == 0 && p.Epoch == "" || p.Epoch == Foreign {
		return ""
	}
	return string(p.Append(nil))
}

// AppendPositions appends the id of an event for a client of n topics: <epoch>-<sequence>.<sequence>…,
// with the position of each topic, in the order of the client's request. A live topic has the
// position 0.
func AppendPositions(b []byte, epoch string, n int, at func(topic int) uint64) []byte {
	b = append(b, epoch...)
	separator := byte('-')
	for i := range n {
		b = strconv.AppendUint(append(b, separator), at(i), 10)
		separator = '.'
	}
	return b
}

// Beginning is the id before the first event that the stream has, and the epoch of its position.
const Beginning = "first"

// Foreign is the epoch of the position that stands for an id of another server. No stream has it.
const Foreign = "?"

// ParsePositions parses an id, which has one position or several. The empty string is the zero position.
func ParsePositions(id string) (all []Position, err error) {
	switch id {
	case "":
		return []Position{{}}, nil
	case Beginning:
		return []Position{{Epoch: Beginning}}, nil
	}
	epoch, numbers, ok := strings.Cut(id, "-")
	if !ok || epoch == "" || len(epoch) > 32 || strings.Count(numbers, ".") >= MaxTopics {
		return nil, ErrID
	}
	epoch = strings.Clone(epoch) // a client must not keep its request in memory
	for number := range strings.SplitSeq(numbers, ".") {
		seq, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return nil, ErrID
		}
		all = append(all, Position{epoch, seq})
	}
	return all, nil
}

var ErrID = errors.New("id: want <epoch>-<sequence>")
