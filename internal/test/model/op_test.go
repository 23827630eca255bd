//go:build unix || windows

package model

import (
	"fmt"
	"strings"

	"github.com/socknotify/socknotify"
)

// An Op is one step of a sequence. Every combination of values is a valid Op: what makes no sense in
// the state that it finds does nothing, so that any part of a sequence is a sequence.
type Op struct {
	Do      Do
	Sock    int               // which of the sockets
	Port    int               // which of the ports
	Key     int               // Enable: keyKeep, keyFresh or keyOld
	Filter  socknotify.Events // Enable
	Trigger socknotify.Trigger
	Drained bool // Enable: vouch, if that is true
	Batch   bool // Enable, Disable, Remove: leave it to the next call
	BySock  bool // Enable, Disable, Remove: name the socket, which vouches for itself, not its handle
	N       int  // how many, or which kind
}

// Do says what an Op does.
type Do int

// The operations. "Peer" is what the other end of a pair does.
const (
	Enable Do = iota
	Disable
	Remove
	Deregister
	Wait    // dequeue: for as long as it takes if something must come
	WaitAll // dequeue with several goroutines at once
	Post
	Settle // dequeue until nothing is due
	PeerSend
	Recv
	RecvAll // receive to would-block
	Send
	SendFull // send to would-block
	PeerRecvAll
	PeerUrgent
	ReadErr
	ShutRead
	ShutWrite
	PeerShutWrite
	PeerClose
	PeerReset
	Close
	DupClose // close the number, but keep the socket alive by a duplicate
	DropDup
	Open     // a new socket under the lowest free number
	Replace  // a new socket under the number of an open one, at once
	NewPort  // close the port and make another, with strict edges if N is odd
	NotFound // operations on a number that names no socket
	OldPeers // send to every socket that only a duplicate keeps alive
	doCount
)

var doNames = [...]string{"Enable", "Disable", "Remove", "Deregister", "Wait", "WaitAll", "Post", "Settle",
	"PeerSend", "Recv", "RecvAll", "Send", "SendFull", "PeerRecvAll", "PeerUrgent", "ReadErr", "ShutRead",
	"ShutWrite", "PeerShutWrite", "PeerClose", "PeerReset", "Close", "DupClose", "DropDup", "Open",
	"Replace", "NewPort", "NotFound", "OldPeers"}

func (d Do) String() string { return doNames[d] }

// The keys that Enable can take.
const (
	keyKeep  = iota // that of the number's registration, or a fresh one
	keyFresh        // one that was never used
	keyOld          // the last that the number had on this port
	keyKinds
)

// Bounds of a sequence.
const (
	socks    = 4
	ports    = 2
	maxN     = 8
	maxFuzz  = 200
	opBytes  = 4
	triggers = 6
)

// GoString prints the fields that are not zero.
func (o Op) GoString() string {
	var b strings.Builder
	fmt.Fprintf(&b, "{Do: %v", o.Do)
	num := func(name string, v int) {
		if v != 0 {
			fmt.Fprintf(&b, ", %s: %d", name, v)
		}
	}
	flag := func(name string, v bool) {
		if v {
			fmt.Fprintf(&b, ", %s: true", name)
		}
	}
	num("Sock", o.Sock)
	num("Port", o.Port)
	num("Key", o.Key)
	num("Filter", int(o.Filter))
	num("Trigger", int(o.Trigger))
	flag("Drained", o.Drained)
	flag("Batch", o.Batch)
	flag("BySock", o.BySock)
	num("N", o.N)
	return b.String() + "}"
}

// literal prints a sequence as Go.
func literal(ops []Op) string {
	var b strings.Builder
	b.WriteString("[]Op{\n")
	for _, o := range ops {
		fmt.Fprintf(&b, "\t%#v,\n", o)
	}
	return b.String() + "}"
}

// trigger is one of the valid combinations.
func trigger(n int) socknotify.Trigger {
	return [triggers]socknotify.Trigger{
		socknotify.TriggerLevel | socknotify.TriggerOneShot,
		socknotify.TriggerEdge,
		socknotify.TriggerLevel,
		socknotify.TriggerEdge | socknotify.TriggerOneShot,
		socknotify.TriggerLevel | socknotify.TriggerPersistent,
		socknotify.TriggerEdge | socknotify.TriggerPersistent,
	}[n%triggers]
}

// decode makes a sequence of any bytes: opBytes of them an Op.
func decode(b []byte) []Op {
	var ops []Op
	for len(b) >= opBytes && len(ops) < maxFuzz {
		op := Op{
			Do:    Do(b[0]) % doCount,
			Sock:  int(b[1] & 3),
			Port:  int(b[1] >> 2 & 1),
			Batch: b[1]>>6&1 != 0,
			N:     int(b[3]) % maxN,

			BySock: b[1]>>7 != 0,
		}
		if op.Do == Enable {
			op.Key = int(b[1]>>3&3) % keyKinds
			op.Drained = b[1]>>5&1 != 0
			op.Filter = socknotify.Events(b[2] & 7)
			op.Trigger = trigger(int(b[2] >> 3))
		}
		ops = append(ops, op)
		b = b[opBytes:]
	}
	return ops
}

// encode is the inverse of decode, for the corpus.
func encode(ops []Op) []byte {
	var b []byte
	for _, o := range ops {
		t := 0
		for trigger(t) != o.Trigger && t < triggers {
			t++
		}
		flags := o.Sock | o.Port<<2 | o.Key<<3
		if o.Drained {
			flags |= 1 << 5
		}
		if o.Batch {
			flags |= 1 << 6
		}
		if o.BySock {
			flags |= 1 << 7
		}
		b = append(b, byte(o.Do), byte(flags), byte(int(o.Filter)|t<<3), byte(o.N))
	}
	return b
}
