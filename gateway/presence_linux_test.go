package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"
)

// attendance asks a member of a cluster who is on a topic.
func (m *member) attendance(t *testing.T, topic string) (n int) {
	t.Helper()
	c := &http.Client{Transport: roundTripper, Timeout: readTimeout}
	answer, err := c.Get(m.url + "/presence?topic=" + topic)
	must(t, err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	must(t, err)
	var a members
	must(t, json.Unmarshal(b, &a))
	return len(a.Members)
}

// Presence is right on all members of a cluster after one was killed, and after it has come back.
func TestPresenceOfCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three processes, and waits until the entries of a killed one have expired")
	}
	members := startCluster(t, time.Second, "--presence", "room.*")
	const each = 20
	join := func(m *member) {
		for range each {
			r, err := openSSE(m.url, "topic=room.1", "")
			must(t, err)
			t.Cleanup(r.close)
		}
	}
	for _, m := range members {
		join(m)
	}
	for _, m := range members {
		until(t, "all are present", func() bool { return m.attendance(t, "room.1") == 3*each })
	}
	w, err := openWS(members[0].url, "topic=$presence.room.1")
	must(t, err)
	defer w.close()
	known := map[string]bool{}
	step := func() {
		t.Helper()
		m, err := w.next()
		must(t, err)
		var e presenceEvent
		must(t, json.Unmarshal([]byte(m.Data), &e))
		for _, p := range e.Members {
			known[p.Client] = true
		}
		switch {
		case e.Join != nil && known[e.Join.Client], e.Leave != nil && !known[e.Leave.Client]:
			t.Errorf("%s comes twice", m.Data)
		case e.Join != nil:
			known[e.Join.Client] = true
		case e.Leave != nil:
			delete(known, e.Leave.Client)
		}
	}
	for len(known) < 3*each {
		step()
	}
	for i, name := range []string{"killed", "killed again"} {
		dead := members[1+i]
		began := time.Now()
		dead.kill()
		for len(known) > 2*each {
			step()
		}
		t.Logf("%s: its members have left after %v", name, time.Since(began))
		if n := members[2-i].attendance(t, "room.1"); n != 2*each {
			t.Errorf("%d are present", n)
		}
		dead.start()
		until(t, "it is ready", dead.ready)
		join(dead)
		for len(known) < 3*each {
			step()
		}
		until(t, "all are present", func() bool { return dead.attendance(t, "room.1") == 3*each })
	}
}
