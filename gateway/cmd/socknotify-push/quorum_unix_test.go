//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/socknotify/socknotify/gateway"
	"github.com/socknotify/socknotify/internal/test/freeport"
)

// While two of three members are stopped, the third refuses events of durable topics with 503 and Retry-After. After a time
// it is not ready, and sends clients of durable topics away. Live topics go on, and their clients stay connected. When the
// members run again, an event that is repeated with its key is stored once, and a client that comes back goes on.
func TestNoQuorum(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three processes, and waits for an acknowledgement that does not come")
	}
	members, urls := startMembers(t, "--window", "1h")
	publish := func(topic, text string) (*http.Response, gateway.Receipt) {
		r, err := http.NewRequest("POST", urls[0]+"/publish?topic="+topic, strings.NewReader(text))
		must(t, err)
		r.Header.Set("Idempotency-Key", text)
		answer, err := caller.Do(r)
		must(t, err)
		defer answer.Body.Close()
		var receipt gateway.Receipt
		if answer.StatusCode == http.StatusOK {
			must(t, json.NewDecoder(answer.Body).Decode(&receipt))
		}
		return answer, receipt
	}
	acknowledged := func(text string) (receipt gateway.Receipt) {
		t.Helper()
		until(t, text+" is acknowledged", func() bool {
			answer, r := publish("news", text)
			receipt = r
			return answer.StatusCode == http.StatusOK
		})
		return receipt
	}
	acknowledged("first")
	durable, end := events(t, urls[0], "topic=news", "")
	defer end()
	last := durable("id: ") // what is published from now on is for the client
	live, endLive := events(t, urls[0], "topic=live.news", "")
	defer endLive()
	acknowledged("before")
	if got := durable("data: "); got != "before" {
		t.Fatalf("got %q", got)
	}
	for _, p := range members[1:] {
		must(t, p.Signal(syscall.SIGSTOP))
		var status syscall.WaitStatus // the process runs for a while after the signal
		if _, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatalf("a member has not stopped: %v, %v", status, err)
		}
	}
	answer, _ := publish("news", "during")
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("without a quorum: %s, Retry-After %q", answer.Status, answer.Header.Get("Retry-After"))
	}
	until(t, "the live client gets an event", func() bool { // it may not have joined when the first is published
		answer, _ := publish("live.news", "live")
		return answer.StatusCode == http.StatusAccepted && live("data: ") == "live"
	})
	if got := durable("nothing begins with this"); got != io.EOF.Error() {
		t.Errorf("the client of a durable topic got %q", got)
	}
	if code, body := ask(t, "GET", urls[0]+"/readyz", ""); code != http.StatusServiceUnavailable {
		t.Errorf("without a quorum: %d %s", code, body)
	}
	until(t, "the live client stays", func() bool {
		answer, _ := publish("live.news", "still")
		return answer.StatusCode == http.StatusAccepted && live("data: ") == "still"
	})
	for _, p := range members[1:] {
		must(t, p.Signal(syscall.SIGCONT))
	}
	id := acknowledged("during").ID
	if again := acknowledged("during"); again.ID != id || !again.Duplicate {
		t.Errorf("the second retry: %+v, want a duplicate of %s", again, id)
	}
	acknowledged("after")
	until(t, "the member is ready", func() bool {
		code, _ := ask(t, "GET", urls[0]+"/readyz", "")
		return code == http.StatusOK
	})
	until(t, "the client goes on", func() bool { // it is sent away while the new leader is busy
		durable, end = events(t, urls[0], "topic=news", last)
		t.Cleanup(end)
		return durable("data: ") == "before"
	})
	for _, want := range []string{"during", "after"} {
		if got := durable("data: "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The first member of a cluster answers probes and clients while it waits for the others: a
// StatefulSet starts the second one when the first is healthy.
func TestFirstMember(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three processes")
	}
	addrs := freeport.Addrs(t, 6)
	start := func(i int) {
		startProcess(t, "--addr", addrs[i], "--name", fmt.Sprint("n", i), "--store", t.TempDir(),
			"--cluster", addrs[3+i], "--routes", strings.Join(addrs[3:], ","))
	}
	url := "http://" + addrs[0]
	start(0)
	until(t, "the first member is healthy", func() bool {
		code, _ := ask(t, "GET", url+"/healthz", "")
		return code == http.StatusOK
	})
	for _, path := range []string{"/readyz", "/poll?topic=a", "/events?topic=a"} {
		if code, body := ask(t, "GET", url+path, ""); code != http.StatusServiceUnavailable {
			t.Errorf("%s of the first member: %d %s", path, code, body)
		}
	}
	r, err := http.NewRequest("GET", url+"/events?topic=a", nil)
	must(t, err)
	r.Header.Set("Accept", "text/event-stream")
	answer, err := caller.Do(r)
	must(t, err)
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("an EventSource got %s", answer.Status)
	}
	start(1)
	start(2)
	until(t, "the first member is ready", func() bool {
		code, _ := ask(t, "GET", url+"/readyz", "")
		return code == http.StatusOK
	})
	if code, body := ask(t, "POST", url+"/publish?topic=a", "x"); code != http.StatusOK {
		t.Errorf("publish: %d %s", code, body)
	}
}

// A node with clients of Mercure is killed. They go on at another node with their ids, and the
// documents have their subscriptions once.
func TestMercureKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three processes")
	}
	flags, token := mercureFlags(t)
	members, urls := startMembers(t, append(flags, "--mercure-subscriptions", "--heartbeat", "1s")...)
	const path, topic = "/.well-known/mercure", "https://a.example/1"
	query := url.Values{"topic": {topic}, "authorization": {token}}
	post := func(data string) {
		t.Helper()
		form := url.Values{"topic": {topic}, "data": {data}, "private": {"on"}}
		until(t, data+" is acknowledged", func() bool {
			r, err := http.NewRequest("POST", urls[1]+path, strings.NewReader(form.Encode()))
			must(t, err)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Idempotency-Key", data)
			answer, err := caller.Do(r)
			if err != nil {
				return false
			}
			answer.Body.Close()
			return answer.StatusCode == http.StatusOK
		})
	}
	// has waits until the documents of the second node have so many subscriptions.
	has := func(n int) {
		t.Helper()
		until(t, fmt.Sprint(n, " subscriptions"), func() bool {
			_, body := ask(t, "GET", urls[1]+path+"/subscriptions?authorization="+token, "")
			var all struct{ Subscriptions []struct{ Topic string } }
			return json.Unmarshal([]byte(body), &all) == nil && len(all.Subscriptions) == n
		})
	}
	var next []func(string) string
	var last []string
	for range 3 {
		line, end := stream(t, urls[0], path+"?"+query.Encode(), "")
		defer end()
		next, last = append(next, line), append(last, "")
	}
	has(3)
	post("1")
	for i, line := range next {
		text := line("")
		for lines := 0; text != "data: 1"; text = line("") {
			if id, ok := strings.CutPrefix(text, "id: "); ok {
				last[i] = id
			}
			if lines++; lines == 1000 {
				t.Fatalf("the update has not come; the last line is %q", text)
			}
		}
	}
	members[0].kill()
	has(0)
	post("2")
	for i := range next {
		line, end := stream(t, urls[1+i%2], path+"?"+query.Encode(), last[i])
		defer end()
		if got := line("data: "); got != "2" {
			t.Errorf("after %s: got %q", last[i], got)
		}
	}
	has(3)
	members[0].start(t)
	until(t, "the member is ready", func() bool {
		code, _ := ask(t, "GET", urls[0]+"/readyz", "")
		return code == http.StatusOK
	})
	line, end := stream(t, urls[0], path+"?"+query.Encode(), last[0])
	defer end()
	if got := line("data: "); got != "2" {
		t.Errorf("at the member that was killed: got %q", got)
	}
	has(4)
}
