//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/socknotify/socknotify/gateway"
	"github.com/socknotify/socknotify/internal/test/freeport"
)

// While two of three members are stopped, the third refuses events of durable topics with 503 and Retry-After. Live topics go
// on, and its clients stay connected. When they run again, an event that is repeated with its key is stored once.
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
	durable("id: ") // what is published from now on is for the client
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
	for _, p := range members[1:] {
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
