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
