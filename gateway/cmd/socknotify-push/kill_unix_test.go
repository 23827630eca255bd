//go:build unix

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gobwas/ws/wsutil"

	"github.com/socknotify/socknotify/gateway"
	"github.com/socknotify/socknotify/gateway/internal/history"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/freeport"
)

var (
	killTime  = flag.Duration("kill", 0, "time for which TestKill kills nodes; 0 skips it")
	killEvery = flag.Duration("kill.every", 20*time.Second,
		"least time between two faults, and half the most")
	killPause = flag.Duration("kill.pause", 30*time.Millisecond,
		"average time between two events of a publisher")
	killClients = flag.Int("kill.clients", 48, "clients of TestKill")
	historyDir  = flag.String("history", "", "folder in which the histories stay")
)

const (
	killTopics    = 12
	killQuiet     = 4                       // topics whose events come less often than the retention
	killIRI       = "https://kill.example/" // the beginning of a topic of Mercure
	killNone      = "none.*"                // a filter that has no event
	mercureTab    = "mercure of Chromium"   // a browser does not show gaps of Mercure
	killHeartbeat = time.Second
	killWindow    = 2 * time.Minute // for which keys are remembered, if the retention is not shorter
	killSilence   = 5 * time.Second // a client leaves a node that says nothing
	killPatience  = time.Minute     // one that waits for its node leaves it
)

// A killTest is what TestKill's clients and publishers share.
type killTest struct {
	t       *testing.T
	age     time.Duration // the retention
	members []*member
	stores  []string
	flags   []string // of each member
	nats    string   // the address of the first node for NATS
	token   string
	begin   string // the id after which all clients begin
	file    string // of the history
	history *history.Writer

	// publishing is locked for reading while an event is published, and for writing while the
	// stream is replaced.
	publishing sync.RWMutex

	away *member // events are not published to it; nil in TestKill

	mu   sync.Mutex
	eras history.Eras
	last string // the id of the last event that was acknowledged
	end  string // that id when the publishers have ended, or empty

	probes atomic.Int64
}

// A killClient is a client that moves between the nodes, and notes what it gets.
type killClient struct {
	k       *killTest
	who     int // in the history
	info    history.Client
	way     string
	filters []string
	after   []string // the position of each filter
	lastID  string   // of Server-Sent Events
	moves   int
	at      *member // the client does not leave it, while it is paused either; nil for any
	failed  error
}

// join notes the client in the history.
func (c *killClient) join() *killClient {
	c.info = history.Client{Name: c.way, Filters: c.filters, Mercure: c.mercure(), Partial: c.way == mercureTab}
	c.who = c.k.history.Join(&c.info)
	return c
}

// wrong notes that the client has got something that it must not get.
func (c *killClient) wrong(format string, a ...any) {
	c.failed = fmt.Errorf(format, a...)
	c.k.history.Add(history.Record{Who: c.who, Wrong: c.failed.Error()})
}

// missed notes a gap.
func (c *killClient) missed(g history.Gap) { c.k.history.Add(history.Record{Who: c.who, Gap: &g}) }

// mercure reports whether the client's ids are those of Mercure.
func (c *killClient) mercure() bool { return strings.HasPrefix(c.way, "mercure") }

// note notes an event. topic is empty if the client is not told it.
func (c *killClient) note(topic, id, data string) {
	of, _, _ := strings.Cut(data, " ")
	f := c.info.Owner(of)
	if f < 0 || topic != "" && topic != of {
		c.wrong("topic %q, id %q: %q is not wanted", topic, id, data)
		return
	}
	if id == "" { // it is in the position of the client
		id = c.after[f]
	}
	c.after[f] = id
	c.k.history.Add(history.Record{Who: c.who, Event: &history.Event{Topic: of, ID: id, Data: data}})
}

// setID takes the id of a block of Server-Sent Events, which has a position for each filter.
func (c *killClient) setID(id string) {
	c.lastID = id
	if c.mercure() {
		c.after[0] = strings.TrimPrefix(id, "#")
		return
	}
	epoch, numbers, _ := strings.Cut(id, "-")
	all := strings.Split(numbers, ".")
	if len(all) != len(c.filters) {
		c.wrong("%d positions in the id %q, want %d", len(all), id, len(c.filters))
		return
	}
	for i, n := range all {
		c.after[i] = epoch + "-" + n
	}
}

// done reports whether the client has everything that was published, or was told what it misses.
func (c *killClient) done() bool {
	c.k.mu.Lock()
	end := c.k.end
	c.k.mu.Unlock()
	if end == "" || c.failed != nil {
		return c.failed != nil
	}
	want := c.k.place(end)
	for i, id := range c.after {
		if c.filters[i] == killNone {
			continue // a WebSocket is not told that time has passed
		}
		if at := c.k.place(id); at.Era != want.Era || at.Seq < want.Seq {
			return false
		}
	}
	return true
}

// silence is the time after which the client leaves a node that says nothing.
func (c *killClient) silence() time.Duration {
	if c.at != nil || strings.HasPrefix(c.filters[0], "t.quiet") {
		return killPatience
	}
	return killSilence
}

// run moves between the nodes until the client is done.
func (c *killClient) run() {
	for !c.done() {
		m := cmp.Or(c.at, c.k.members[rand.IntN(len(c.k.members))])
		c.moves++
		stay := 5 + rand.IntN(300)
		err := errors.New("unknown way")
		switch c.way {
		case "sse":
			err = c.stream(m, "/events?"+url.Values{"topic": c.filters}.Encode(), stay)
		case "mercure":
			err = c.stream(m, "/.well-known/mercure?"+url.Values{"topic": c.filters}.Encode()+
				"&authorization="+c.k.token, stay)
		case "websocket":
			err = c.socket(m, stay)
		case "poll":
			err = c.poll(m, stay)
		}
		switch {
		case err != nil:
			await.Pause(100 * time.Millisecond)
		case rand.IntN(10) == 0: // it stays away, also for longer than the retention
			await.UpTo(min(c.k.age*3/2, 15*time.Second))
		}
	}
}

// stream follows a stream of Server-Sent Events for so many blocks.
func (c *killClient) stream(m *member, path string, stay int) error {
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(m.url, "http://"), c.silence())
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n", path)
	fmt.Fprintf(conn, "Last-Event-ID: %s\r\n", c.lastID)
	if c.mercure() {
		io.WriteString(conn, "User-Agent: Mozilla/5.0\r\n") // browsers get positions between updates
	} else {
		fmt.Fprintf(conn, "Authorization: Bearer %s\r\n", c.k.token)
	}
	io.WriteString(conn, "\r\n")
	in := bufio.NewReader(conn)
	conn.SetReadDeadline(time.Now().Add(c.silence()))
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	if at := answer.Header.Get("Last-Event-Id"); c.mercure() && at != "" && at != c.lastID {
		if at == "earliest" {
			c.wrong("all updates are told again after %s", c.lastID)
			return nil
		}
		c.missed(history.Gap{Topic: c.filters[0], After: c.lastID[1:], Last: at[1:]})
		c.setID(at)
	}
	return c.blocks(in, stay, func() { conn.SetReadDeadline(time.Now().Add(c.silence())) })
}

// blocks reads blocks of Server-Sent Events. alive is called before each line.
func (c *killClient) blocks(in *bufio.Reader, stay int, alive func()) error {
	id, name, data := "", "", []string(nil)
	for stay > 0 {
		alive()
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case field == "id":
			id = value
		case field == "event":
			name = value
		case field == "data":
			data = append(data, value)
		case line == "\n":
			if id != "" {
				c.setID(id)
			}
			switch {
			case data == nil:
			case name == "gap":
				c.noteGap([]byte(strings.Join(data, "\n")))
			default:
				c.note("", "", strings.Join(data, "\n"))
			}
			if c.done() {
				return nil
			}
			id, name, data = "", "", nil
			stay--
		}
	}
	return nil
}

// noteGap notes the data of an event named gap.
func (c *killClient) noteGap(data []byte) {
	var g struct{ Missed []history.Gap }
	if err := json.Unmarshal(data, &g); err != nil || len(g.Missed) == 0 {
		c.wrong("a gap that has nothing: %s", data)
		return
	}
	for _, missed := range g.Missed {
		c.missed(missed)
	}
}

// A killMessage is one of a WebSocket, or the answer to a poll.
type killMessage struct {
	Topic, ID, Data, Gap string
	Missed               []history.Gap
	Last                 []string
	Events               []killMessage
}

// take notes what a message has. The gap comes before the events.
func (c *killClient) take(m *killMessage) {
	if m.Gap != "" && len(m.Missed) == 0 {
		c.wrong("a gap that has nothing: %+v", m)
	}
	for _, g := range m.Missed {
		c.missed(g)
		if i := slices.Index(c.filters, g.Topic); i >= 0 && m.Last == nil {
			c.after[i] = g.Last
		}
	}
	for _, e := range m.Events {
		c.note(e.Topic, e.ID, e.Data)
	}
	if m.Data != "" {
		c.note(m.Topic, m.ID, m.Data)
	}
	if m.Last != nil {
		copy(c.after, m.Last)
	}
}

// socket follows a WebSocket for so many messages.
func (c *killClient) socket(m *member, stay int) error {
	query := url.Values{"topic": c.filters, "after": c.after, "token": {c.k.token}}
	at := "ws" + strings.TrimPrefix(m.url, "http") + "/socket?" + query.Encode()
	conn, err := dialSocket(at)
	if err != nil {
		return err
	}
	defer conn.Close()
	for ; stay > 0 && !c.done(); stay-- {
		conn.SetReadDeadline(time.Now().Add(killSilence))
		b, _, err := wsutil.ReadServerData(conn)
		if err != nil {
			return err
		}
		var m killMessage
		if err := json.Unmarshal(b, &m); err != nil {
			return err
		}
		c.take(&m)
	}
	return nil
}

// poll polls so many times.
func (c *killClient) poll(m *member, stay int) error {
	for ; stay > 0 && !c.done(); stay-- {
		query := url.Values{"topic": c.filters, "after": c.after}
		r, err := http.NewRequest("GET", m.url+"/poll?"+query.Encode(), nil)
		must(c.k.t, err)
		r.Header.Set("Authorization", "Bearer "+c.k.token)
		b, status, err := c.k.do(r, c.silence())
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%d: %s", status, b)
		}
		var answer killMessage
		if err == nil {
			err = json.Unmarshal(b, &answer)
		}
		if err != nil {
			return err
		}
		c.take(&answer)
	}
	return nil
}

// do makes a request, and returns the body and the status of the answer.
func (k *killTest) do(r *http.Request, limit time.Duration) ([]byte, int, error) {
	client := http.Client{Timeout: limit, Transport: caller.Transport}
	answer, err := client.Do(r)
	if err != nil {
		return nil, 0, err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	return b, answer.StatusCode, err
}

// publish publishes an event until it is acknowledged, for at most a third of the time for which
// its key is remembered. It reports whether it was.
func (k *killTest) publish(topic, data string, private bool) bool {
	k.publishing.RLock()
	defer k.publishing.RUnlock()
	began := time.Now()
	for try := 1; time.Since(began) < min(k.age, killWindow)/3 || try == 1; try++ {
		path, body := "/publish?topic="+topic, data
		form := strings.HasPrefix(topic, killIRI)
		if form {
			f := url.Values{"topic": {topic}, "data": {data}}
			if private {
				f.Set("private", "on")
			}
			path, body = "/.well-known/mercure", f.Encode()
		}
		node := rand.IntN(len(k.members))
		m := k.members[node]
		if m == k.away {
			continue
		}
		r, err := http.NewRequest("POST", m.url+path, strings.NewReader(body))
		must(k.t, err)
		r.Header.Set("Authorization", "Bearer "+k.token)
		r.Header.Set("Idempotency-Key", data)
		if form {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		asked := time.Now()
		b, status, err := k.do(r, 8*time.Second)
		if err != nil {
			status = 0
		}
		id := ""
		if status == http.StatusOK {
			if id = strings.TrimPrefix(string(b), "#"); !form {
				var receipt struct{ ID string }
				must(k.t, json.Unmarshal(b, &receipt))
				id = receipt.ID
			}
		}
		k.history.Add(history.Record{Try: &history.Try{Topic: topic, Data: data, N: try, Node: node,
			Began: asked.UnixNano(), Status: status, ID: id}})
		if id != "" {
			k.acknowledged(id)
			return true
		}
		await.Pause(50 * time.Millisecond)
	}
	return false
}

// acknowledged notes the id of an event.
func (k *killTest) acknowledged(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last, _ := k.eras.Place(k.last)
	if at, err := k.eras.Place(id); err != nil {
		k.t.Error(err)
	} else if last.Before(at) {
		k.last = id
	}
}

// place returns where the event with an id is.
func (k *killTest) place(id string) history.Place {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, err := k.eras.Place(id)
	if err != nil {
		k.t.Error(err)
	}
	return at
}

// check has the history checked by a program of its own.
func (k *killTest) check() (r history.Report) {
	k.t.Helper()
	must(k.t, k.history.Close())
	c := exec.Command("go", "run", "../../internal/history/checkhistory", k.file)
	var faults bytes.Buffer
	c.Stderr = &faults
	out, err := c.Output()
	if err != nil {
		k.t.Errorf("%v: %s", err, faults.Bytes())
	}
	if err := json.Unmarshal(out, &r); err != nil {
		k.t.Errorf("%v: %q", err, out)
	}
	return r
}

// status returns what a node says of itself.
func (k *killTest) status(m *member) (s status) {
	_, body := ask(k.t, "GET", m.debug+"/status", "")
	json.Unmarshal([]byte(body), &s)
	return s
}

// whole waits until all members are ready, and all replicas have what the leader has.
func (k *killTest) whole() {
	k.t.Helper()
	for _, m := range k.members {
		until(k.t, m.url+" is ready", func() bool {
			code, _ := ask(k.t, "GET", m.url+"/readyz", "")
			return code == http.StatusOK
		})
	}
	until(k.t, "the replicas are complete", func() bool {
		s := k.status(k.members[0])
		lags := func(m gateway.Member) bool { return !m.Current || m.Offline }
		return len(s.Members) == 3 && !slices.ContainsFunc(s.Members, lags)
	})
}

// victim returns the leader of the stream, or any member.
func (k *killTest) victim() *member {
	i := rand.IntN(3)
	for _, m := range k.status(k.members[i]).Members {
		if m.Leader && rand.IntN(2) == 0 {
			i, _ = strconv.Atoi(strings.TrimPrefix(m.Name, "n"))
		}
	}
	return k.members[i]
}

// pause stops members for a time.
func (k *killTest) pause(d time.Duration, members ...*member) {
	for _, m := range members {
		must(k.t, m.Signal(syscall.SIGSTOP))
	}
	await.Pause(d)
	for _, m := range members {
		must(k.t, m.Signal(syscall.SIGCONT))
	}
}

// enter notes the era of the stream. Nothing may be published.
func (k *killTest) enter() {
	k.t.Helper()
	probe := &killClient{k: k, way: "sse", filters: []string{"t.none"}, after: []string{""}}
	until(k.t, "a client has an id", func() bool {
		probe.stream(k.members[0], "/events?topic=t.none", 2) // the first block may have no id
		return probe.lastID != ""
	})
	epoch, number, _ := strings.Cut(probe.lastID, "-")
	k.mu.Lock()
	defer k.mu.Unlock()
	era := history.Era{Epoch: epoch, Base: must1(strconv.ParseUint(number, 10, 64))}
	k.eras = append(k.eras, era)
	k.history.Add(history.Record{Era: &era})
}

// restore kills all members, deletes their files, and starts them with a backup.
func (k *killTest) restore(backup string) {
	k.publishing.Lock()
	defer k.publishing.Unlock()
	for i, m := range k.members {
		m.kill()
		must(k.t, os.RemoveAll(k.stores[i]))
	}
	for i, m := range k.members {
		more := []string{"--await-stream"}
		if i == 0 {
			more = []string{"--restore", backup}
		}
		m.args = append(m.args, more...)
		m.start(k.t)
	}
	k.whole()
	k.enter()
}

// killPage opens streams in a browser, and notes what they get.
const killPage = `
	window.streams = %s.map(url => {
		const s = { got: [], gaps: [], source: new EventSource(url) }
		s.source.onmessage = e => s.got.push([e.lastEventId, e.data])
		s.source.addEventListener('gap', e => s.gaps.push(e.data))
		return s
	})
`

// browse makes clients of EventSources in Chromium: two for each member.
func (k *killTest) browse() (b *tab, clients []*killClient) {
	if _, err := exec.LookPath("chromium"); err != nil {
		k.t.Logf("without a browser: %v", err)
		return nil, nil
	}
	b = openTab(k.t, k.members[0].url+"/healthz")
	until(k.t, "the page is loaded", func() bool {
		return b.eval("location.pathname + document.readyState") == "/healthzcomplete"
	})
	var urls []string
	for _, m := range k.members {
		urls = append(urls, m.url+"/events?topic=t.*&after="+k.begin+"&token="+k.token,
			m.url+"/.well-known/mercure?topic=*&lastEventID=%23"+k.begin+"&authorization="+k.token)
		for _, c := range []*killClient{{way: "sse of Chromium", filters: []string{"t.*"}}, {way: mercureTab, filters: []string{"*"}}} {
			c.k, c.after = k, []string{k.begin}
			clients = append(clients, c.join())
		}
	}
	b.eval(fmt.Sprintf(killPage, must1(json.Marshal(urls))))
	until(k.t, "the browser's streams are open", func() bool {
		return b.eval("streams.every(s => s.source.readyState === 1)") == true
	})
	return b, clients
}

// collect waits until each of a browser's streams gets events, and takes what they have got.
func (k *killTest) collect(b *tab, clients []*killClient) {
	alive := fmt.Sprintf(`streams.every(s => s.source.readyState === 1 &&
		s.got.some(e => e[1].split('probe ')[1] > %d))`, k.probes.Load())
	defer func() {
		if k.t.Failed() {
			k.t.Log(b.eval(`JSON.stringify(streams.map(s =>
				[s.source.url, s.source.readyState, s.got.at(-1)]))`))
		}
	}()
	until(k.t, "all streams of the browser live", func() bool {
		k.probe()
		return b.eval(alive) == true
	})
	var all []struct {
		Got  [][2]string
		Gaps []string
	}
	text := b.eval("JSON.stringify(streams.map(s => ({Got: s.got, Gaps: s.gaps})))").(string)
	must(k.t, json.Unmarshal([]byte(text), &all))
	for i, c := range clients {
		for _, e := range all[i].Got {
			c.setID(e[0])
			c.note("", "", e[1])
		}
		for _, g := range all[i].Gaps {
			c.noteGap([]byte(g))
		}
	}
}

// probe publishes an event to each topic. It does not count, but shows clients that they have
// everything before.
func (k *killTest) probe() {
	n := k.probes.Add(1)
	for i := range killTopics {
		k.publish(fmt.Sprint("t.", i), fmt.Sprintf("t.%d probe %d", i, n), false)
	}
	k.publish(killIRI+"0", fmt.Sprintf("%s0 probe %d", killIRI, n), false)
	for i := range killQuiet { // a poll that always finds events of other topics tells no position of these
		k.publish(fmt.Sprint("t.quiet", i), fmt.Sprintf("t.quiet%d probe %d", i, n), false)
	}
}

// A node is paused until all events that came before, and some that have come since, have left the
// stream. Its clients follow a topic each, and stay. The next event of each topic comes at a time of
// its own after the node has woken. Each event that was acknowledged comes once, or is in a gap.
func TestPausedBeyondRetention(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three processes, and waits for the retention")
	}
	const age, topics = 4 * time.Second, 40
	k := startKill(t, age)
	woken := k.members[2]
	k.away = woken
	var clients []*killClient
	var following sync.WaitGroup
	for i := range topics {
		topic := fmt.Sprint("t.quiet", i)
		c := &killClient{k: k, way: []string{"sse", "poll"}[i%2], filters: []string{topic},
			after: []string{k.begin}, lastID: k.begin, at: woken}
		clients = append(clients, c.join())
		following.Go(c.run)
	}
	publish := func(topic int, what string) {
		name, n := fmt.Sprint("t.quiet", topic), 0
		until(t, what+" is acknowledged", func() bool {
			n++
			return k.publish(name, fmt.Sprintf("%s %s %d", name, what, n), false)
		})
	}
	for i := range topics {
		publish(i, "before")
	}
	must(t, woken.Signal(syscall.SIGSTOP))
	for i := range topics {
		publish(i, "lost")
	}
	last := k.place(k.last).Seq
	// The others close their routes to the node. It wakes for a moment, in which it finds that it
	// has not heard of its leader for a long time.
	await.Pause(2 * age)
	must(t, woken.Signal(syscall.SIGCONT))
	await.Pause(age / 16)
	must(t, woken.Signal(syscall.SIGSTOP))
	await.Pause(2 * age)
	until(t, "the events have left the stream", func() bool { return k.status(k.members[0]).First > last })
	must(t, woken.Signal(syscall.SIGCONT))
	for i := range topics {
		publish(i, "after")
		await.Pause(age / 128) // the node makes its routes again, and is told of the leader
	}
	k.whole()
	for i := range topics {
		publish(i, "end")
	}
	k.finish()
	k.wait(&following, clients)
	if k.check().Told == 0 {
		t.Error("no event has left the stream before its client was told")
	}
}

// newKill begins a history.
func newKill(t *testing.T, age time.Duration) *killTest {
	k := &killTest{t: t, age: age, file: filepath.Join(t.TempDir(), "history")}
	if *historyDir != "" {
		k.file = filepath.Join(*historyDir, strings.ReplaceAll(t.Name(), "/", "_"))
	}
	k.history = must1(history.Create(k.file))
	t.Cleanup(func() { k.history.Close() })
	k.flags, k.token = mercureFlags(t)
	k.flags = append(k.flags, "--origins", "*", "--heartbeat", killHeartbeat.String(), "--retry", "1s",
		"--max-age", age.String())
	return k
}

// start starts the members, and publishes the event after which all clients begin.
func (k *killTest) start() {
	k.t.Helper()
	for _, m := range k.members {
		m.start(k.t)
	}
	k.whole()
	k.enter()
	for !k.publish("t.0", "t.0 first", false) {
	}
	k.begin = k.last
	k.history.Add(history.Record{Begin: k.begin})
}

// startKill starts a cluster on this machine.
func startKill(t *testing.T, age time.Duration) *killTest {
	k := newKill(t, age)
	addrs := freeport.Addrs(t, 12)
	for i := range 3 {
		k.stores = append(k.stores, t.TempDir())
		k.members = append(k.members, &member{url: "http://" + addrs[i], debug: "http://" + addrs[6+i],
			args: append([]string{"--addr", addrs[i], "--name", fmt.Sprint("n", i), "--store", k.stores[i],
				"--cluster", addrs[3+i], "--routes", strings.Join(addrs[3:6], ","),
				"--debug-addr", addrs[6+i], "--nats-addr", addrs[9+i]}, k.flags...)})
	}
	k.nats = "nats://" + addrs[9]
	k.start()
	return k
}

// clients makes clients: of each way, with one topic, a wildcard, several topics, and a
// wildcard that has a topic of the client's own.
func (k *killTest) clients(n int) (all []*killClient) {
	for i := range n {
		c := &killClient{k: k, way: []string{"sse", "websocket", "poll", "mercure"}[i%4]}
		topic := fmt.Sprint("t.", i%killTopics)
		if i/16%2 == 1 && i%4%2 == 0 { // of a WebSocket that is not told that time has passed, done knows nothing
			topic = fmt.Sprint("t.quiet", i%killQuiet)
		}
		switch kind := i / 4 % 4; {
		case c.way == "mercure":
			c.filters = [][]string{{fmt.Sprint(killIRI, i%killTopics)}, {killIRI + "{id}"}, {"*"},
				{killIRI + "0", killIRI + "1", "https://none.example"}}[kind]
		default:
			c.filters = [][]string{{topic}, {"t.*"}, {topic, fmt.Sprint("t.", (i+5)%killTopics), killNone},
				{topic, "t.*"}}[kind]
		}
		for range c.filters {
			c.after = append(c.after, k.begin)
		}
		switch c.way {
		case "mercure":
			c.after = c.after[:1]
			c.lastID = "#" + k.begin
		case "sse":
			c.lastID = k.begin
		}
		all = append(all, c.join())
	}
	return all
}

// harm kills and pauses nodes until ctx is done. A backup is made after a quarter of the time, and
// restored at half of it.
func (k *killTest) harm(ctx context.Context) {
	began := time.Now()
	backup := filepath.Join(k.t.TempDir(), "backup")
	kills, pauses, restores := 0, 0, 0
	for {
		select {
		case <-time.After(*killEvery + rand.N(*killEvery)): // the pace of what it does
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		_, err := os.Stat(backup)
		switch past := time.Since(began); {
		case err != nil && past > *killTime/4:
			var out bytes.Buffer
			args := []string{"backup", "--nats", k.nats, backup}
			if status := command(ctx, args, io.Discard, &out); status != 0 {
				k.t.Errorf("%v: status %d: %s", args, status, out.String())
			}
			continue
		case restores == 0 && past > *killTime/2:
			k.restore(backup)
			restores++
			continue
		}
		m := k.victim()
		switch rand.IntN(5) {
		case 0, 1:
			m.kill()
			kills++
			if rand.IntN(3) == 0 { // its replica has a hole then
				await.UpTo(min(2*k.age, killLonger))
			}
			m.start(k.t)
		case 2, 3:
			k.pause(rand.N(min(2*k.age, killLonger)), m)
			pauses++
		case 4: // there is no quorum
			i := slices.Index(k.members, m)
			k.pause(time.Second+rand.N(5*time.Second), m, k.members[(i+1)%3])
			pauses += 2
		}
		k.whole()
	}
	k.t.Logf("%d kills, %d pauses, %d restores", kills, pauses, restores)
}

// killLonger is the longest time for which a node is away.
const killLonger = 20 * time.Second

// finish notes the last event that counts. No publisher may run.
func (k *killTest) finish() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.end = k.last
	k.history.Add(history.Record{End: k.end})
}

// Nodes of a cluster are killed and paused, one or two at a time, some for longer than the
// retention, and once the cluster is lost and made from an old backup. Clients of each way move
// between the nodes; those of quiet topics stay at a node that is paused. Each event that was acknowledged comes to each of its clients once, and those
// of a filter in order, or the client is told of a gap that has it; and no gap has an event that
// comes. No EventSource of a browser is dead at the end.
func TestKill(t *testing.T) {
	if *killTime == 0 {
		t.Skip("it takes long, and is asked for by -kill; .ci/soak runs it")
	}
	t.Run("short retention", func(t *testing.T) { testKill(t, 8*time.Second) })
	t.Run("long retention", func(t *testing.T) { testKill(t, time.Hour) })
}

// wait waits until all clients have everything up to the last event that counts.
func (k *killTest) wait(following *sync.WaitGroup, clients []*killClient) {
	k.t.Helper()
	ended := make(chan struct{})
	go func() {
		following.Wait()
		close(ended)
	}()
	for began := time.Now(); ; {
		k.probe()
		select {
		case <-ended:
			return
		default:
			if time.Since(began) < 3*time.Minute {
				continue
			}
			for _, c := range clients {
				k.t.Logf("%s %v: at %v, %v", c.way, c.filters, c.after, c.failed)
			}
			k.t.Fatalf("timed out waiting for clients to have everything up to %s", k.end)
		}
	}
}

func testKill(t *testing.T, age time.Duration) {
	k := startKill(t, age)
	clients := k.clients(*killClients)
	b, browsing := k.browse()
	k.run(clients, *killTime, *killPause, k.harm)
	if b != nil {
		k.collect(b, browsing)
	}
	k.summarize(clients)
}

// run publishes and follows while harm does something to the cluster, for so long. pause is the
// average time between two events of a publisher. Then it waits until all clients have everything.
func (k *killTest) run(clients []*killClient, d, pause time.Duration, harm func(context.Context)) {
	var following, publishing sync.WaitGroup
	for _, c := range clients {
		following.Go(c.run)
	}
	ctx, cancel := context.WithTimeout(k.t.Context(), d)
	defer cancel()
	for p := range 3 {
		publishing.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				topic := fmt.Sprint("t.", n%killTopics)
				if n%3 == 2 {
					topic = fmt.Sprint(killIRI, n%killTopics)
				}
				k.publish(topic, fmt.Sprintf("%s p%d %d", topic, p, n), n%2 == 0)
				await.UpTo(2 * pause)
			}
		})
	}
	publishing.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			topic := fmt.Sprint("t.quiet", n%killQuiet)
			k.publish(topic, fmt.Sprintf("%s quiet %d", topic, n), false)
			select {
			case <-time.After(rand.N(2 * min(k.age, killLonger/2) / killQuiet)):
			case <-ctx.Done():
			}
		}
	})
	harm(ctx)
	publishing.Wait()
	k.whole()
	k.finish()
	k.wait(&following, clients)
}

// summarize has the history checked, and logs what it has.
func (k *killTest) summarize(clients []*killClient) {
	k.t.Helper()
	moves := 0
	for _, c := range clients {
		moves += c.moves
	}
	k.t.Logf("the eras are %v; the clients have connected %d times: %+v", k.eras, moves, k.check())
}
