package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gobwas/ws/wsutil"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/freeport"
)

var (
	besideProgram = flag.String("beside", "", "the program centrifugo 6, for TestBeside")
	besideClients = flag.Int("beside.clients", 50, "subscribers of each server")
	besideEvents  = flag.Int("beside.events", 10, "events of a round")
	besideRounds  = flag.Int("beside.rounds", 2, "rounds of each server, which alternate")
	besidePause   = flag.Duration("beside.pause", 20*time.Millisecond, "time between two events")
	besideIdle    = flag.Duration("beside.idle", 0, "time of silence before memory is read")
)

// A rival is a server that is compared: the gateway, or Centrifugo.
type rival struct {
	t         *testing.T
	name, url string // of WebSockets
	process   *os.Process
	subscribe []string // what a client sends, and each has an answer
	publish   string   // a format for a number and the data
	ping      []byte   // a message that is answered with itself, or nil
	answer    string   // what an answer to publish has, besides the number

	publisher net.Conn
	writing   sync.Mutex // of the publisher's connection
	answers   chan error // nil for an event that was accepted
	number    int
	conns     []net.Conn
	received  atomic.Int64
	reading   sync.WaitGroup

	mu        sync.Mutex
	latencies []time.Duration

	cpu            []float64 // microseconds for each delivery, of each round
	p50, p99       []time.Duration
	idle, resident float64 // bytes for each client, before the rounds and after them
	base           int
}

// A besideMark is around the time of publishing in an event.
const besideMark = '@'

// TestBeside compares the gateway with Centrifugo, which runs at the same time: the processor time
// for a delivery, the latency, and the resident memory of a client that is connected by WebSocket.
// Rounds of the two alternate. Both keep the events that clients could ask for again.
func TestBeside(t *testing.T) {
	if *besideProgram == "" {
		t.Skip("it compares, and needs -beside with the program centrifugo")
	}
	for i := range 4 {
		c := struct{ webhooks, presence bool }{i&1 != 0, i&2 != 0}
		t.Run(fmt.Sprintf("webhooks=%t,presence=%t", c.webhooks, c.presence), func(t *testing.T) {
			var asked atomic.Int64
			backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				asked.Add(1)
				io.WriteString(w, `{"result":{}}`)
			}))
			t.Cleanup(backend.Close)
			hooks := ""
			if c.webhooks {
				hooks = backend.URL
			}
			all := []*rival{newGatewayRival(t, hooks, c.presence), newCentrifugo(t, hooks, c.presence)}
			for _, r := range all {
				before := asked.Load()
				r.connect()
				// Each of the two asks for each client and each subscription.
				n, least := asked.Load()-before, 2*int64(*besideClients)
				if c.webhooks && n < least || !c.webhooks && n > 0 {
					t.Errorf("%s has asked %d times", r.name, n)
				}
			}
			for round := range *besideRounds {
				for i := range all {
					all[(i+round)%len(all)].round()
				}
			}
			for _, r := range all {
				r.resident = r.memory()
				r.report()
			}
			us, them := all[0], all[1]
			var ratios []float64
			for i := range us.cpu {
				ratios = append(ratios, us.cpu[i]/them.cpu[i])
			}
			slices.Sort(ratios)
			t.Logf("of Centrifugo's: processor time %.2f (%.2f to %.2f), memory %.3f before the rounds "+
				"and %.3f after, p99 %.2f", ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1],
				us.idle/them.idle, us.resident/them.resident,
				float64(middle(us.p99))/float64(middle(them.p99)))
		})
	}
}

func middle(all []time.Duration) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

func newGatewayRival(t *testing.T, hooks string, presence bool) *rival {
	addr := freeport.Addrs(t, 1)[0]
	args := []string{"--addr", addr, "--name", "one", "--store", t.TempDir(), "--log-level", "error"}
	if presence {
		args = append(args, "--presence", "beside")
	}
	if hooks != "" {
		secret := filepath.Join(t.TempDir(), "secret")
		must(t, os.WriteFile(secret, []byte("a secret of 32 bytes, for a test"), 0o600))
		args = append(args, "--webhook-connect", hooks+"/connect",
			"--webhook-subscribe", hooks+"/subscribe", "--webhook-publish", hooks+"/publish",
			"--webhook-private", "--webhook-secret", secret)
	}
	p, _ := startProcess(t, args...)
	until(t, "the gateway is ready", func() bool {
		code, _ := ask(t, "GET", "http://"+addr+"/readyz", "")
		return code == http.StatusOK
	})
	return &rival{t: t, name: "socknotify-push", process: p,
		url:       "ws://" + addr + "/socket?topic=beside",
		subscribe: []string{""},
		publish:   `{"ref":%d,"publish":{"topic":"beside","data":%q}}`,
		answer:    `"published"`}
}

func newCentrifugo(t *testing.T, hooks string, presence bool) *rival {
	addr := freeport.Addrs(t, 1)[0]
	host, port, err := net.SplitHostPort(addr)
	must(t, err)
	namespace := map[string]any{"presence": presence, "join_leave": presence, "history_size": 1000,
		"history_ttl": "24h", "allow_subscribe_for_client": true, "allow_publish_for_subscriber": true}
	config := map[string]any{
		"http_server": map[string]any{"address": host, "port": port},
		"client":      map[string]any{"insecure": true, "allowed_origins": []string{"*"}},
		"channel":     map[string]any{"without_namespace": namespace},
		"health":      map[string]any{"enabled": true},
		"log":         map[string]any{"level": "error"},
	}
	if hooks != "" {
		config["client"].(map[string]any)["proxy"] = map[string]any{
			"connect": map[string]any{"enabled": true, "endpoint": hooks + "/connect"}}
		config["channel"].(map[string]any)["proxy"] = map[string]any{
			"subscribe": map[string]any{"endpoint": hooks + "/subscribe"},
			"publish":   map[string]any{"endpoint": hooks + "/publish"}}
		namespace["subscribe_proxy_enabled"], namespace["publish_proxy_enabled"] = true, true
	}
	file := filepath.Join(t.TempDir(), "config.json")
	must(t, os.WriteFile(file, must1(json.Marshal(config)), 0o600))
	c := exec.Command(*besideProgram, "--config", file)
	var log bytes.Buffer
	c.Stdout, c.Stderr = &log, &log
	must(t, c.Start())
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
		if t.Failed() {
			t.Logf("centrifugo: %s", log.Bytes())
		}
	})
	until(t, "centrifugo is ready", func() bool {
		code, _ := ask(t, "GET", "http://"+addr+"/health", "")
		return code == http.StatusOK
	})
	return &rival{t: t, name: "centrifugo", process: c.Process,
		url:       "ws://" + addr + "/connection/websocket",
		subscribe: []string{`{"id":1,"connect":{}}`, `{"id":2,"subscribe":{"channel":"beside"}}`},
		publish:   `{"id":%d,"publish":{"channel":"beside","data":%q}}`,
		ping:      []byte("{}"),
		answer:    `"publish"`}
}

// dial connects a client that has subscribed.
func (r *rival) dial() net.Conn {
	r.t.Helper()
	conn, err := dialSocket(r.url)
	must(r.t, err)
	for _, text := range r.subscribe {
		conn.SetDeadline(time.Now().Add(time.Minute))
		if text != "" {
			must(r.t, wsutil.WriteClientText(conn, []byte(text)))
		}
		b, err := wsutil.ReadServerText(conn)
		if err != nil || bytes.Contains(b, []byte(`"error"`)) {
			r.t.Fatalf("%s: %v, %s", r.name, err, b)
		}
	}
	conn.SetDeadline(time.Time{})
	return conn
}

// connect connects all clients, one after the other.
func (r *rival) connect() {
	r.publisher, r.answers = r.dial(), make(chan error, 1)
	r.reading.Go(r.confirm)
	r.t.Cleanup(func() {
		r.publisher.Close()
		for _, conn := range r.conns {
			conn.Close()
		}
		r.reading.Wait()
	})
	r.base = r.rss()
	for range *besideClients {
		conn := r.dial()
		r.conns = append(r.conns, conn)
		r.reading.Go(func() { r.read(conn) })
	}
	await.Pause(*besideIdle)
	r.idle = r.memory()
}

// read counts what a client gets, until its connection ends.
func (r *rival) read(conn net.Conn) {
	for {
		b, _, err := wsutil.ReadServerData(conn)
		now := time.Now()
		if err != nil {
			return
		}
		if r.pings(b) {
			wsutil.WriteClientText(conn, r.ping)
		}
		for _, at := range marks(b) { // there may be several in a message
			r.mu.Lock()
			r.latencies = append(r.latencies, now.Sub(time.Unix(0, at)))
			r.mu.Unlock()
			r.received.Add(1)
		}
	}
}

// pings reports whether a message has a ping, perhaps behind others, each in a line.
func (r *rival) pings(b []byte) bool {
	for line := range bytes.Lines(b) {
		if r.ping != nil && bytes.Equal(bytes.TrimSpace(line), r.ping) {
			return true
		}
	}
	return false
}

// marks returns the times in a message.
func marks(b []byte) (all []int64) {
	for {
		_, rest, ok := bytes.Cut(b, []byte{besideMark})
		number, rest, closed := bytes.Cut(rest, []byte{besideMark})
		if !ok || !closed {
			return all
		}
		if at, err := strconv.ParseInt(string(number), 10, 64); err == nil {
			all = append(all, at)
		}
		b = rest
	}
}

// round publishes events, one each pause, and waits until all were delivered.
func (r *rival) round() {
	r.mu.Lock()
	r.latencies = r.latencies[:0]
	r.mu.Unlock()
	before, began := r.processor(), r.received.Load()
	next := time.Now()
	for range *besideEvents {
		await.Pause(time.Until(next))
		next = next.Add(*besidePause)
		r.number++
		now, rest := time.Now().UnixNano(), strings.Repeat("x", 80)
		data := fmt.Sprintf("%c%d%c%s", besideMark, now, besideMark, rest)
		must(r.t, r.write(fmt.Appendf(nil, r.publish, r.number, data)))
		must(r.t, await.Receive(r.t, r.name+" has answered", r.answers))
	}
	want := int64(*besideEvents * *besideClients)
	until(r.t, r.name+" has delivered all events", func() bool { return r.received.Load()-began >= want })
	used := r.processor() - before
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := int64(len(r.latencies)); n != want {
		r.t.Errorf("%s: %d deliveries, want %d", r.name, n, want)
	}
	slices.Sort(r.latencies)
	r.cpu = append(r.cpu, used.Seconds()*1e6/float64(want))
	r.p50 = append(r.p50, r.latencies[len(r.latencies)/2])
	r.p99 = append(r.p99, r.latencies[len(r.latencies)*99/100])
}

// write writes a message of the publisher.
func (r *rival) write(b []byte) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	return wsutil.WriteClientText(r.publisher, b)
}

// confirm reads what the publisher gets, until its connection ends.
func (r *rival) confirm() {
	for {
		b, err := wsutil.ReadServerText(r.publisher)
		if err != nil {
			return
		}
		if r.pings(b) && r.write(r.ping) != nil {
			return
		}
		switch {
		case bytes.Contains(b, []byte(`"error"`)):
			r.answers <- fmt.Errorf("%s: %s", r.name, b)
		case bytes.Contains(b, []byte(r.answer)):
			r.answers <- nil
		}
	}
}

// processor returns the time that the server's process has used.
func (r *rival) processor() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.process.Pid))
	must(r.t, err)
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	user, system := must1(strconv.Atoi(fields[11])), must1(strconv.Atoi(fields[12]))
	return time.Duration(user+system) * 10 * time.Millisecond // 100 in a second on each Linux
}

// rss returns the resident bytes of the server's process.
func (r *rival) rss() int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", r.process.Pid))
	must(r.t, err)
	return must1(strconv.Atoi(strings.Fields(string(b))[1])) * os.Getpagesize()
}

// memory returns the resident bytes for each client.
func (r *rival) memory() float64 { return float64(r.rss()-r.base) / float64(*besideClients) }

func (r *rival) report() {
	cpu := slices.Sorted(slices.Values(r.cpu))
	r.t.Logf("%s: %.2f µs for a delivery (%.2f to %.2f), p50 %v, p99 %v, "+
		"%.0f bytes for a client before the rounds, %.0f after", r.name, cpu[len(cpu)/2], cpu[0],
		cpu[len(cpu)-1], middle(r.p50), middle(r.p99), r.idle, r.resident)
}
