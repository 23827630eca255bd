package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/gateway/internal/event"
)

// A client may begin with the last events that are stored: so many of each topic, or all if they
// are fewer, by each way. An id counts before that.
func TestLast(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	for i := range 300 { // of c few, in the middle of many others
		s.publish("a", fmt.Sprint("a", i))
		if i%100 == 50 {
			s.publish("c", fmt.Sprint("c", i))
		}
		s.publish(fmt.Sprint("b.", i%7), fmt.Sprint("b", i))
	}
	for _, c := range []struct {
		query string
		want  string
	}{
		{"topic=a&last=3", "a297 a298 a299"},
		{"topic=a&last=1", "a299"},
		{"topic=c&last=1", "c250"},
		{"topic=c&last=2", "c150 c250"},
		{"topic=c&last=3", "c50 c150 c250"},
		{"topic=c&last=1000", "c50 c150 c250"},
		{"topic=b.*&last=4", "b296 b297 b298 b299"},
		{"topic=a&topic=c&last=2", "a298 a299 c150 c250"},
		{"topic=none&last=5", ""},
		{"topic=live.x&last=5", ""},
	} {
		status, body := s.request("GET", "/poll?"+c.query, "")
		var answer pollMessage
		must(t, json.NewDecoder(strings.NewReader(body)).Decode(&answer))
		var got []string
		for _, e := range answer.Events {
			got = append(got, e.Data)
		}
		if status != 200 || strings.Join(got, " ") != c.want || answer.Gap != "" {
			t.Errorf("%s: %d %s, want %s", c.query, status, body, c.want)
		}
	}
	sse, err := openSSE(s.url, "topic=c&last=2", "")
	must(t, err)
	defer sse.close()
	socket, err := openWS(s.url, "topic=c&topic=live.x&last=2")
	must(t, err)
	defer socket.close()
	s.publish("c", "new")
	for _, r := range []reader{sse, socket} {
		for _, want := range []string{"c150", "c250", "new"} {
			expect(t, r, message{Data: want})
		}
	}
	again, err := openSSE(s.url, "topic=c&last=2", sse.lastID) // as a browser comes back
	must(t, err)
	defer again.close()
	s.publish("c", "newer")
	expect(t, again, message{Data: "newer"})
	for _, query := range []string{"last=0", "last=-1", "last=x", "last=1001", "topic=b&last=501"} {
		if status, _ := s.request("GET", "/poll?topic=a&"+query, ""); status != 400 {
			t.Errorf("%s: %d", query, status)
		}
	}
}

// The retention has taken the older events. Those that are left come without a gap.
func TestLastAfterRetention(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{Stream: StreamConfig{MaxBytes: 64 << 10}})
	for i := range 200 {
		s.publish("a", fmt.Sprint(i, strings.Repeat("x", 1000)))
	}
	sse, err := openSSE(s.url, "topic=a&last=900", "")
	must(t, err)
	defer sse.close()
	n := 0
	for ; ; n++ {
		m, err := sse.next()
		must(t, err)
		if m.Gap != "" {
			t.Fatalf("%+v", m)
		}
		if strings.HasPrefix(m.Data, "199x") {
			break
		}
	}
	if n == 0 || n > 64 {
		t.Errorf("%d events came", n)
	}
}

// An EventSource keeps the id that it has got from the server that was there before. It is told of a
// gap, and goes on with what is stored from now on.
func TestIDOfAnotherServer(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	last := s.publish("a", "before")
	for _, id := range []string{"42", "550e8400-e29b-41d4-a716-446655440000", "12345678-1234-4234-8234-123456789abc",
		"other-1.2", "-", "x-", "a b", "?-7", "\xff", strings.Repeat("9", 4000)} {
		r, err := openSSE(s.url, "topic=a&topic=b&topic=live.c", id)
		if err != nil {
			t.Errorf("%.50q: %v", id, err)
			continue
		}
		m, err := r.next()
		must(t, err)
		want := []event.Miss{{Topic: "a", Last: last}, {Topic: "b", Last: last}}
		if m.Gap != event.GapEpoch || !slices.Equal(m.Missed, want) {
			t.Errorf("%.50q: %+v", id, m)
		}
		s.publish("a", "after")
		expect(t, r, message{Data: "after"})
		r.close()
		again, err := openSSE(s.url, "topic=a&topic=b&topic=live.c", r.lastID)
		must(t, err)
		last = s.publish("b", "again")
		expect(t, again, message{Data: "again"})
		again.close()
	}
	for path, id := range map[string]string{
		"/events?topic=a": s.hub.Epoch + "-x", "/events?topic=a&topic=b": s.hub.Epoch + "-1.2.3",
		"/poll?topic=a": "42", "/events?topic=a&after=42": ""} {
		var header []string
		if id != "" {
			header = []string{"Last-Event-ID", id}
		}
		if status, body := s.request("GET", path, "", header...); status != http.StatusBadRequest {
			t.Errorf("%s with %q: %d %s", path, id, status, body)
		}
	}
}

// A client may begin with the first event that the stream has.
func TestFromTheBeginning(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{})
	for _, data := range []string{"1", "2"} {
		s.publish("a", data)
	}
	status, body := s.request("GET", "/poll?topic=a&after=first", "")
	var answer struct{ Events []event.Envelope }
	must(t, json.NewDecoder(strings.NewReader(body)).Decode(&answer))
	if status != 200 || len(answer.Events) != 2 || answer.Events[0].Data != "1" || strings.Contains(body, "gap") {
		t.Errorf("%d %s", status, body)
	}
	r, err := openSSE(s.url, "topic=a&topic=b&after=first", "")
	must(t, err)
	defer r.close()
	s.publish("b", "3")
	for _, want := range []string{"1", "2", "3"} {
		m, err := r.next()
		if must(t, err); m.Data != want {
			t.Errorf("got %+v, want %s", m, want)
		}
	}
}
