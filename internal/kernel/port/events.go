package port

import (
	"strconv"
	"strings"
)

// The types and values below are those of the public package, which documents them.

// Socket is a system socket handle.
type Socket = uintptr

// Events is a set of socket conditions.
type Events uint32

const (
	EventNone   Events = 0x00
	EventIn     Events = 0x01
	EventOut    Events = 0x02
	EventHangup Events = 0x04
	EventErr    Events = 0x40
	EventRemove Events = 0x80

	EventsAll = EventIn | EventOut | EventHangup
)

// String names the events, joined by "|"; the empty set is "NONE".
func (e Events) String() string {
	if e == EventNone {
		return "NONE"
	}
	return flagString(uint32(e), []flagName{
		{uint32(EventIn), "IN"},
		{uint32(EventOut), "OUT"},
		{uint32(EventHangup), "HANGUP"},
		{uint32(EventErr), "ERR"},
		{uint32(EventRemove), "REMOVE"},
	})
}

// Op is what an entry does to its socket.
type Op uint8

const (
	OpNone    Op = 0
	OpEnable  Op = 1
	OpDisable Op = 2
	OpRemove  Op = 4
)

// String names the operation in lower case, as error messages do.
func (o Op) String() string {
	if o == OpNone {
		return "none"
	}
	return flagString(uint32(o), []flagName{
		{uint32(OpEnable), "enable"},
		{uint32(OpDisable), "disable"},
		{uint32(OpRemove), "remove"},
	})
}

// Trigger says when an enabled registration notifies.
type Trigger uint8

const (
	TriggerOneShot    Trigger = 1
	TriggerPersistent Trigger = 2
	TriggerLevel      Trigger = 4
	TriggerEdge       Trigger = 8
)

// String names the trigger flags, joined by "|"; no flags are "0".
func (t Trigger) String() string {
	return flagString(uint32(t), []flagName{
		{uint32(TriggerLevel), "level"},
		{uint32(TriggerEdge), "edge"},
		{uint32(TriggerOneShot), "one-shot"},
		{uint32(TriggerPersistent), "persistent"},
	})
}

type flagName struct {
	bit  uint32
	name string
}

// flagString names the bits of v, and the rest, if any, as one hexadecimal number.
func flagString(v uint32, names []flagName) string {
	var parts []string
	for _, f := range names {
		if v&f.bit != 0 {
			parts = append(parts, f.name)
			v &^= f.bit
		}
	}
	if v != 0 {
		parts = append(parts, "0x"+strconv.FormatUint(uint64(v), 16))
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, "|")
}
