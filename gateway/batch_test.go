package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A result is the answer to one of several events.
type result struct {
	Topic, ID string
	Duplicate bool
	Error     *struct {
		Status int
		Text   string
		Retry  int64
	}
}

// postAll publishes several events, and returns the status and the answers: for each its status, and
// whether it was stored before.
func (s *site) postAll(path, body string, header ...string) (status int, short string, all []result) {
	s.t.Helper()
	status, text := s.request("POST", path, body, header...)
	var answer struct{ Results []result }
	if json.Unmarshal([]byte(text), &answer) != nil {
		return status, text, nil
	}
	for _, r := range answer.Results {
		switch {
		case r.Error != nil:
			short += fmt.Sprint(r.Topic, " ", r.Error.Status, ", ")
		case r.Duplicate:
			short += r.Topic + " again, "
		case r.ID == "":
			short += r.Topic + " live, "
		default:
			short += r.Topic + " stored, "
		}
	}
	return status, strings.TrimSuffix(short, ", "), answer.Results
}

// An event is published to several topics, and several events with one request, in their order. There
// is an answer for each, and the status of the request is that of the first one that was refused.
func TestBatch(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{MaxMessage: 1000, Authorize: func(r *http.Request) (Grant, error) {
		if Token(r) == "reader" {
			return Grant{Read: []string{">"}}, nil
		}
		return Grant{Read: []string{">"}, Write: []string{"a", "b", "live.>"}}, nil
	}})
	long := strings.Repeat("x", 1001)
	many := strings.Repeat(`{"topic":"a"}`, maxEventsOfTest+1)
	for _, c := range []struct {
		name, path, body, key string
		status                int
		want                  string
	}{
		{"topics", "/publish?topic=a&topic=b", "1", "", 200, "a stored, b stored"},
		{"with a key", "/publish?topic=a&topic=b", "2", "k", 200, "a stored, b stored"},
		{"again", "/publish?topic=b&topic=a", "2", "k", 200, "b again, a again"},
		{"live and stored", "/publish?topic=a&topic=live.x", "3", "", 200, "a stored, live.x live"},
		{"live", "/publish?topic=live.x&topic=live.y", "4", "", 202, "live.x live, live.y live"},
		{"one is not allowed", "/publish?topic=c&topic=a", "5", "", 403, "c 403, a stored"},
		{"one is malformed", "/publish?topic=a&topic=b..c", "6", "", 400, "a stored, b..c 400"},
		{"too long", "/publish?topic=a&topic=b", long, "", 413, "gateway: the event is too long\n"},
		{"an array", "/publish", `[{"topic":"a","data":"7"},{"topic":"b","data":"8","key":"8"}]`, "", 200, "a stored, b stored"},
		{"lines", "/publish", "{\"topic\":\"a\",\"data\":\"9\"}\n{\"topic\":\"b\",\"data\":\"8\",\"key\":\"8\"}\n", "", 200, "a stored, b again"},
		{"a key for all", "/publish", `[{"topic":"a","data":"10"},{"topic":"a","data":"11"}]`, "K", 200, "a stored, a stored"},
		{"that again", "/publish", `[{"topic":"a","data":"10"},{"topic":"a","data":"11"}]`, "K", 200, "a again, a again"},
		{"a key that was used", "/publish", `[{"topic":"a","data":"12"},{"topic":"b","data":"other","key":"8"},{"topic":"b","data":"13"}]`,
			"", 422, "a stored, b 422, b stored"},
		{"one is too long", "/publish", `[{"topic":"a","data":"` + long + `"},{"topic":"a","data":"14"}]`, "", 413, "a 413, a stored"},
		{"empty", "/publish", " ", "", 400, "no topic, and no batch\n"},
		{"no events", "/publish", "[]", "", 400, "no topic, and no batch\n"},
		{"too many", "/publish", many, "", 400, fmt.Sprintf("more than %d events\n", maxEventsOfTest)},
		{"too many topics", "/publish?topic=a" + strings.Repeat("&topic=a", 64), "x", "", 400, "more than 64 topics\n"},
	} {
		var header []string
		if c.key != "" {
			header = []string{"Idempotency-Key", c.key}
		}
		if status, got, _ := s.postAll(c.path, c.body, header...); status != c.status || got != c.want {
			t.Errorf("%s: %d %q, want %d %q", c.name, status, got, c.status, c.want)
		}
	}
	for _, body := range []string{"hello", `{"topic":"a"} x`, `{"topic":1}`, "[1]"} {
		if status, got, _ := s.postAll("/publish", body); status != 400 || !strings.HasPrefix(got, "no topic, and no batch: ") {
			t.Errorf("%s: %d %q", body, status, got)
		}
	}
	if status, got, _ := s.postAll("/publish", "[]", "Authorization", "Bearer reader"); status != 403 {
		t.Errorf("without a right: %d %q", status, got)
	}
	a := &pollReader{url: s.url, topics: []string{"a"}, after: []string{"first"}}
	for _, want := range []string{"1", "2", "3", "5", "6", "7", "9", "10", "11", "12", "14"} {
		expect(t, a, message{Topic: "a", Data: want})
	}
	b := &pollReader{url: s.url, topics: []string{"b"}, after: []string{"first"}}
	for _, want := range []string{"1", "2", "8", "13"} {
		expect(t, b, message{Topic: "b", Data: want})
	}
}

// maxEventsOfTest is the number of events that a batch may have.
const maxEventsOfTest = 1000

// Of a batch that is beyond the rate, what came before that is published. What follows is refused, and
// not published before what was refused.
func TestBatchRate(t *testing.T) {
	s := newSite(t, t.TempDir(), Config{PublishRate: Rate{PerSecond: 1, Burst: 2}})
	body := `[{"topic":"a","data":"1"},{"topic":"b","data":"2"},{"topic":"a","data":"3"},{"topic":"a b","data":"4"}]`
	status, got, all := s.postAll("/publish", body)
	if want := "a stored, b stored, a 429, a b 429"; status != 429 || got != want {
		t.Fatalf("%d %q, want 429 %q", status, got, want)
	}
	if all[2].Error.Retry <= 0 || all[2].Error.Text == "" {
		t.Errorf("the answer is %+v", all[2].Error)
	}
	if n := s.Stats().Refused; n != 1 {
		t.Errorf("%d requests were refused, want 1", n)
	}
}
