//go:build unix

package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/socknotify/socknotify/gateway"
)

// While two of three members are stopped, the third refuses events of durable topics with 503 and Retry-After. Live topics go
// on, and its clients stay connected. When they run again, an event that is repeated with its key is stored once.
func TestNoQuorum(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three processes, and waits for an acknowledgement that does not come")
	}
	urls, _, processes, _ := startMembers(t, "--window", "1h")
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
	durable("id: ") // what is published from now on is for the client
	live, endLive := events(t, urls[0], "topic=live.news", "")
	defer endLive()
	acknowledged("before")
	if got := durable("data: "); got != "before" {
		t.Fatalf("got %q", got)
	}
	for _, p := range processes[1:] {
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
	for _, p := range processes[1:] {
		must(t, p.Signal(syscall.SIGCONT))
	}
	id := acknowledged("during").ID
	if again := acknowledged("during"); again.ID != id || !again.Duplicate {
		t.Errorf("the second retry: %+v, want a duplicate of %s", again, id)
	}
	acknowledged("after")
	for _, want := range []string{"during", "after"} {
		if got := durable("data: "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
