package event

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// A Position is a place in the stream: that of an event, or the last one that a client has seen. Its text is an event's id.
//
// Where topics are spread over several shards, a filter with wildcards has a place in each: Seq is that in the first one,
// and Others has those in the others, in their order. Positions share Others, so it is not changed.
type Position struct {
	Epoch  string // of the stream; another stream's sequences mean other events
	Seq    uint64
	Others []uint64
}

// IsZero reports whether there is no position.
func (p Position) IsZero() bool { return p.Epoch == "" && p.Seq == 0 && p.Others == nil }

// Width returns the number of shards that the position has a place in.
func (p Position) Width() int { return 1 + len(p.Others) }

// In returns the place in one of the shards.
func (p Position) In(i int) uint64 {
	if i == 0 {
		return p.Seq
	}
	return p.Others[i-1]
}

// With returns the position with another place in one of the shards.
func (p Position) With(i int, seq uint64) Position {
	if i == 0 {
		p.Seq = seq
	} else if p.Others[i-1] != seq {
		p.Others = slices.Clone(p.Others)
		p.Others[i-1] = seq
	}
	return p
}

// Covers reports whether the position has all that q has, of the same filter.
func (p Position) Covers(q Position) bool {
	for i := range q.Width() {
		if p.In(i) < q.In(i) {
			return false
		}
	}
	return true
}

// Max returns the position that has all that p and q have, of the same filter.
func (p Position) Max(q Position) Position {
	for i := range q.Width() {
		if seq := q.In(i); seq > p.In(i) {
			p = p.With(i, seq)
		}
	}
	return p
}

// All returns the position that has a place in each of n shards, the same in all.
func All(epoch string, seq uint64, n int) Position {
	p := Position{Epoch: epoch, Seq: seq}
	if n > 1 {
		p.Others = slices.Repeat([]uint64{seq}, n-1)
	}
	return p
}

func (p Position) Append(b []byte) []byte {
	return p.appendPlaces(append(append(b, p.Epoch...), '-'), -1)
}

// appendPlaces appends the sequences: _ is between those of one filter, and ~ before that of an event
// whose id it is.
func (p Position) appendPlaces(b []byte, own int) []byte {
	for i := range p.Width() {
		if i > 0 {
			b = append(b, '_')
		}
		if i == own && p.Others != nil {
			b = append(b, '~')
		}
		b = strconv.AppendUint(b, p.In(i), 10)
	}
	return b
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
func AppendPositions(b []byte, epoch string, n int, at func(topic int) Position) []byte {
	b = append(b, epoch...)
	separator := byte('-')
	for i := range n {
		b = at(i).appendPlaces(append(b, separator), -1)
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
	for places := range strings.SplitSeq(numbers, ".") {
		p := Position{Epoch: epoch}
		first, others, several := strings.Cut(places, "_")
		if several {
			first = strings.TrimPrefix(first, "~")
		}
		if p.Seq, err = strconv.ParseUint(first, 10, 64); err != nil {
			return nil, ErrID
		}
		if several {
			n := strings.Count(others, "_") + 1
			if n >= MaxShards {
				return nil, ErrID
			}
			p.Others = make([]uint64, 0, n)
			for number := range strings.SplitSeq(others, "_") {
				seq, err := strconv.ParseUint(strings.TrimPrefix(number, "~"), 10, 64)
				if err != nil {
					return nil, ErrID
				}
				p.Others = append(p.Others, seq)
			}
		}
		all = append(all, p)
	}
	return all, nil
}

var ErrID = errors.New("id: want <epoch>-<sequence>")
