package presence

import (
	"fmt"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/gateway/internal/event"
)

// A roster has at most maxMembers members, of at most maxMemberBytes, and says that there may be
// more.
func TestPresenceBounds(t *testing.T) {
	r := &roster{members: make(map[string]attendee)}
	for i := range 2 * maxMembers {
		r.add(attendee{Client: fmt.Sprint("n-", i)})
	}
	if a := r.attendance(); len(a.Members) != maxMembers || !a.Full || r.add(attendee{Client: "n-x"}) {
		t.Errorf("%d members, full: %v", len(a.Members), a.Full)
	}
	r.remove("n-1")
	if !r.add(attendee{Client: "n-x"}) || r.add(attendee{Client: "n-2"}) {
		t.Error("a place was not given to another")
	}
	r = &roster{members: make(map[string]attendee)}
	for i := range maxMembers {
		r.add(attendee{fmt.Sprint("n-", i), strings.Repeat("u", 256)})
	}
	a := r.attendance()
	if b := len(event.Encode(a)); b > 2*maxMemberBytes || r.bytes > maxMemberBytes || !a.Full {
		t.Errorf("%d bytes for %d", b, r.bytes)
	}
	for client := range r.members {
		r.remove(client)
	}
	if r.bytes != 0 {
		t.Errorf("%d bytes of no member", r.bytes)
	}
}
