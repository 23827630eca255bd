package hub

import (
	"testing"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/stream"
)

// Audits that find a shorter stream end the gateway after a time, however many there are.
func TestShorterStream(t *testing.T) {
	var b Backwards
	now := time.Now()
	for i := range 100 {
		if b.Note(ErrBackwards, now.Add(time.Duration(i)*time.Millisecond)) {
			t.Fatalf("the stream was given up after %d audits in %d ms", i, i)
		}
	}
	if b.Note(nil, now); b.Note(ErrBackwards, now.Add(MaxBackwards)) {
		t.Error("the stream was as long as before in between")
	}
	if b.Note(stream.ErrNoStream, now.Add(MaxBackwards)); !b.Note(ErrBackwards, now.Add(2*MaxBackwards)) {
		t.Error("the stream was not given up")
	}
}

// A node that finds no leader sends its clients away after a time, however many audits there are, and
// not if an audit has found one in between. What else may be wrong with the stream is no such reason.
func TestLeaderless(t *testing.T) {
	var l leaderless
	now := time.Now()
	if l.note(nil, now) || l.note(stream.ErrNoLeader, now) {
		t.Error("at once")
	}
	for i := range 100 {
		if l.note(stream.ErrNoStream, now.Add(MaxLeaderless-time.Duration(i+1))) {
			t.Fatal("before the time")
		}
	}
	if !l.note(stream.ErrNoLeader, now.Add(MaxLeaderless)) || !l.note(stream.ErrNoLeader, now.Add(2*MaxLeaderless)) {
		t.Error("not after the time")
	}
	for _, err := range []error{nil, stream.ErrDeleted, ErrBackwards} {
		l.note(stream.ErrNoLeader, now)
		if l.note(err, now.Add(MaxLeaderless)) || l.note(stream.ErrNoLeader, now.Add(2*MaxLeaderless)) {
			t.Errorf("%v: no new beginning", err)
		}
	}
}
