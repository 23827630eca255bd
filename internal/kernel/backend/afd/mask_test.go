package afd

import (
	"testing"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

const (
	reading = backend.In | backend.Urgent | backend.PeerClosed // the layer above asks for this for EventIn
	writing = backend.Out | backend.PeerClosed
	either  = reading | writing
)

func TestInterest(t *testing.T) {
	const always = abort | connectFail | localClose
	for _, c := range []struct {
		name string
		m    backend.Mask
		want uint32
	}{
		{"nothing", 0, always},
		{"hang-up", backend.PeerClosed, always | disconnect},
		{"receive", backend.In, always | receive | accept | disconnect},
		{"urgent", backend.Urgent, always | expedited},
		{"send", backend.Out, always | send},
		{"IN", reading, always | receive | accept | disconnect | expedited},
		{"OUT", writing, always | send | disconnect},
		{"what cannot be asked for", backend.Err | backend.Dead, always},
	} {
		if got := interest(c.m); got != c.want {
			t.Errorf("%s: %#x; want %#x", c.name, got, c.want)
		}
	}
}

// The events of AFD in each situation, on Windows or Wine, and the conditions that they mean. The events are limited
// to those that the interest asks for.
func TestMask(t *testing.T) {
	const (
		in    = backend.In
		out   = backend.Out
		ended = backend.In | backend.PeerClosed
		died  = backend.In | backend.PeerClosed | backend.Err | backend.Dead
	)
	for _, c := range []struct {
		name   string
		stream bool
		asked  backend.Mask
		events uint32
		want   backend.Mask
	}{
		{"data", true, reading, receive, in},
		{"data, room to send", true, either, receive | send, in | out},
		{"idle", true, either, send, out},
		{"connected", true, writing, send, out},
		{"connected, with CONNECT as Windows may add", true, writing, send | 0x40, out},
		{"half close", true, reading, disconnect, ended},
		{"half close, room to send", true, either, send | disconnect, ended | out},
		{"data before the end, Windows", true, reading, receive | disconnect, ended},
		{"data before the end, Wine", true, reading, receive, in},
		{"hang-up alone is asked for", true, backend.PeerClosed, disconnect, ended},
		{"both directions shut", true, either, disconnect, ended},
		{"reset", true, reading, abort, died},
		{"reset, room to send", true, either, send | abort, died | out},
		{"reset, nothing asked for", true, 0, abort, died},
		{"data, then reset", true, reading, receive | abort, died},
		{"end, then reset", true, reading, disconnect | abort, died},
		{"connect refused", true, writing, connectFail, backend.Err | backend.Dead},
		{"connect refused, nothing asked for", true, 0, connectFail, backend.Err | backend.Dead},
		{"urgent data", true, reading, expedited, backend.Urgent},
		{"urgent and other data", true, reading, receive | expedited, in | backend.Urgent},
		{"a connection to accept", false, reading, accept, in},
		{"a datagram", false, reading, receive, in},
		{"a datagram, room to send", false, either, receive | send, in | out},
		{"port unreachable, Wine", false, reading, connectFail, backend.Err},
		{"port unreachable, Windows", false, reading, receive, in},
		{"a datagram socket is never hung up on", false, reading, disconnect | abort, in | backend.Err},
		{"closed here", true, reading, localClose, 0},
		{"nothing", true, either, 0, 0},
	} {
		if c.events&^(interest(c.asked)|0x40) != 0 {
			t.Errorf("%s: the interest does not ask for %#x", c.name, c.events)
		}
		if got := mask(c.events, c.stream); got != c.want {
			t.Errorf("%s: %#x; want %#x", c.name, got, c.want)
		}
	}
}

// Every event that can complete a poll makes a report, except the closing of the socket: a poll that completes without
// a report would be started again, and complete again.
func TestEveryEventIsReported(t *testing.T) {
	for m := backend.Mask(0); m < 0x40; m++ {
		for bit := uint32(1); bit != 0; bit <<= 1 {
			if interest(m)&bit == 0 || bit == localClose {
				continue
			}
			for _, stream := range []bool{true, false} {
				if mask(bit, stream) == 0 {
					t.Errorf("event %#x means nothing", bit)
				}
			}
		}
	}
}
