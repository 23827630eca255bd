package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/gateway/internal/history"
	"github.com/socknotify/socknotify/gateway/internal/trust/authority"
	"github.com/socknotify/socknotify/internal/test/await"
)

var (
	partitionTime    = flag.Duration("partition", 0, "time for which TestPartition harms a network, for each retention; 0 skips it")
	partitionEvery   = flag.Duration("partition.every", 8*time.Second, "least time between two faults, and half the most")
	partitionPause   = flag.Duration("partition.pause", 150*time.Millisecond, "average time between two events of a publisher")
	partitionClients = flag.Int("partition.clients", 900, "clients of TestPartition")
)

const (
	partitionDisk  = 64 << 20 // of a member
	partitionMixed = 48       // clients that are as those of TestKill; the others follow one topic each
)

// A partitionTest is a cluster whose members are in namespaces of their own.
type partitionTest struct {
	*killTest
	net    *network
	certs  []string // folders of the members' certificates; nil without
	signer *authority.Authority
	clocks []*processClock
	counts map[string]int // of the faults
}

// startPartition starts the cluster. Its members trust each other by certificates if secure is set.
func startPartition(t *testing.T, age time.Duration, secure bool, seen func([]byte)) *partitionTest {
	t.Helper()
	p := &partitionTest{net: newNetwork(t, seen), counts: make(map[string]int)}
	k := newKill(t, age)
	p.killTest = k
	const token = "a-token-of-24-characters"
	k.flags = append(k.flags, "--debug-token", authority.Put(t, t.TempDir(), "token", []byte(token)))
	var routes []string
	for _, s := range p.net.spaces {
		routes = append(routes, s.inner+":6222")
	}
	p.signer = authority.New(t, "ours")
	for i, s := range p.net.spaces {
		store := smallDisk(t)
		k.stores = append(k.stores, store)
		c := new(processClock)
		p.clocks = append(p.clocks, c)
		m := &member{url: "http://" + s.outer + ":8080", debug: "http://any:" + token + "@" + s.outer + ":6060",
			begin: func(command *exec.Cmd) error {
				return s.inside(func() error { return c.start(command) })
			},
			args: append([]string{"--addr", s.outer + ":8080", "--debug-addr", s.outer + ":6060",
				"--name", fmt.Sprint("n", i), "--store", filepath.Join(store, "push"), "--cluster", routes[i],
				"--routes", strings.Join(routes, ",")}, k.flags...)}
		if secure {
			dir := t.TempDir()
			p.certs = append(p.certs, dir)
			cert, key, ca := p.signer.Write(t, dir, fmt.Sprint("n", i), s.inner, time.Hour)
			m.args = append(m.args, "--cluster-cert", cert, "--cluster-key", key, "--cluster-ca", ca)
		} else {
			m.args = append(m.args, "--cluster-insecure")
		}
		k.members = append(k.members, m)
	}
	k.start()
	return p
}

// smallDisk returns a folder with a file system of its own.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprint("size=", partitionDisk)))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// A cluster's network is harmed beside publishers and clients: members are cut off, in both directions
// or in one, also so that there is no majority; packets are delayed and dropped; clocks are set, within
// what is promised; a disk is full; all certificates are replaced. Each event that was acknowledged
// comes to each of its clients once, and those of a filter in order, or is in a gap; a member that is
// cut off acknowledges nothing, and sends its clients away.
func TestPartition(t *testing.T) {
	if *partitionTime == 0 {
		t.Skip("it takes long, and is asked for by -partition; .ci/soak runs it")
	}
	t.Run("short retention", func(t *testing.T) { testPartition(t, 8*time.Second) })
	t.Run("long retention", func(t *testing.T) { testPartition(t, time.Hour) })
}

func testPartition(t *testing.T, age time.Duration) {
	p := startPartition(t, age, true, nil)
	clients := p.clients(min(*partitionClients, partitionMixed))
	for i := len(clients); i < *partitionClients; i++ {
		clients = append(clients, p.single(i))
	}
	p.run(clients, *partitionTime, *partitionPause, p.harm)
	t.Logf("%v; %d packets have passed between members, and %d were dropped", p.counts, p.net.passed.Load(), p.net.dropped.Load())
	p.summarize(clients)
}

// single returns a client of one topic.
func (p *partitionTest) single(i int) *killClient {
	c := &killClient{k: p.killTest, way: []string{"sse", "websocket", "poll", "mercure"}[i%4], after: []string{p.begin}, lastID: p.begin}
	c.filters = []string{fmt.Sprint("t.", i%killTopics)}
	if c.way == "mercure" {
		c.filters, c.lastID = []string{fmt.Sprint(killIRI, i%killTopics)}, "#"+p.begin
	}
	return c.join()
}

// harm does one thing after the other to the network, each as often as the others, until ctx is done.
func (p *partitionTest) harm(ctx context.Context) {
	longest := min(2*p.age, killLonger)
	faults := map[string]func(){
		"cut off":   func() { p.cutOff(rand.N(longest)) },
		"sent away": func() { p.sentAway(p.chosen()) },
		"one direction": func() {
			i := p.chosen()
			p.net.set(i, (i+1)%3, false, way{cut: true})
			await.Pause(rand.N(longest))
		},
		"all that one sends": func() {
			i := p.chosen()
			p.net.set(i, (i+1)%3, false, way{cut: true})
			p.net.set(i, (i+2)%3, false, way{cut: true})
			await.Pause(rand.N(longest))
		},
		"all that one gets": func() {
			i := p.chosen()
			p.net.set((i+1)%3, i, false, way{cut: true})
			p.net.set((i+2)%3, i, false, way{cut: true})
			await.Pause(rand.N(longest))
		},
		"no majority": func() {
			p.net.all(way{cut: true})
			p.note(true, 0, 1, 2)
			await.Pause(time.Second + rand.N(longest/2))
			p.note(false, 0, 1, 2)
		},
		"slow": func() {
			p.net.all(way{delay: 20*time.Millisecond + rand.N(200*time.Millisecond), loss: 0.1 * rand.Float64()})
			await.Pause(longest)
		},
		"clock": func() {
			ok, err := p.clocks[rand.IntN(3)].set(rand.N(1800*time.Millisecond) - 900*time.Millisecond)
			must(p.t, err)
			if !ok {
				p.t.Log("no clock can be set here")
			}
			await.Pause(longest / 2)
			for _, c := range p.clocks { // the clocks of two may not differ by more
				c.set(0)
			}
		},
		"full disk":    func() { p.fill(p.chosen()) },
		"certificates": p.rotate,
	}
	var names []string
	for {
		select {
		case <-time.After(*partitionEvery + rand.N(*partitionEvery)): // the pace of what it does
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return
		}
		if len(names) == 0 {
			for name := range faults {
				names = append(names, name)
			}
			slices.Sort(names)
			rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		}
		p.history.Add(history.Record{Note: names[0]})
		faults[names[0]]()
		p.counts[names[0]]++
		names = names[1:]
		p.net.all(way{})
		p.history.Add(history.Record{Note: "healed"})
		p.whole()
	}
}

// chosen returns the leader of the stream, or any member.
func (p *partitionTest) chosen() int { return slices.Index(p.members, p.victim()) }

// note notes that members are cut off from all others, or about not to be any more.
func (p *partitionTest) note(off bool, members ...int) {
	for _, i := range members {
		p.history.Add(history.Record{Cut: &history.Cut{Node: i, Off: off}})
	}
}

// cutOff cuts a member off.
func (p *partitionTest) cutOff(d time.Duration) {
	i := p.chosen()
	p.net.isolate(i)
	p.note(true, i)
	await.Pause(d)
	p.note(false, i)
}

// sentAway cuts a member off until it has sent a client of a durable topic away, and is not ready. It
// keeps the client of a live topic.
func (p *partitionTest) sentAway(i int) {
	url := p.members[i].url
	durable, endDurable := events(p.t, url, "topic=t.0&token="+p.token, p.begin)
	defer endDurable()
	live, endLive := events(p.t, url, "topic=live.a&token="+p.token, "")
	defer endLive()
	for _, next := range []func(string) string{durable, live} {
		if got := next("HTTP/1.1 "); !strings.HasPrefix(got, "200") {
			p.t.Errorf("got %s", got)
			return
		}
	}
	p.net.isolate(i)
	p.note(true, i)
	ended := make(chan string, 1)
	go func() { ended <- durable("nothing begins with this") }()
	if got := await.Receive(p.t, "the client is sent away", ended); got != io.EOF.Error() {
		p.t.Errorf("the client of a durable topic got %s", got)
	}
	until(p.t, "the member is not ready", func() bool {
		code, _ := ask(p.t, "GET", url+"/readyz", "")
		return code == http.StatusServiceUnavailable
	})
	for range 10 { // heartbeats, some of which have come since
		if got := live(":"); got != "" {
			p.t.Errorf("the client of a live topic got %s", got)
		}
	}
	p.note(false, i)
}

// fill fills the disk of a member for a time, and starts the member again, as docs/gateway.md says.
func (p *partitionTest) fill(i int) {
	name := filepath.Join(p.stores[i], "fill")
	f := must1(os.Create(name))
	block := make([]byte, 64<<10)
	var err error
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		p.t.Error(err)
	}
	await.Pause(rand.N(killLonger))
	f.Close()
	must(p.t, os.Remove(name))
	p.members[i].kill()
	p.members[i].start(p.t)
}

// rotate replaces all certificates, also that of the authority.
func (p *partitionTest) rotate() {
	next := authority.New(p.t, fmt.Sprint("next", p.counts["certificates"]))
	both := slices.Concat(p.signer.PEM, next.PEM)
	for _, change := range []func(dir, name, host string){
		func(dir, _, _ string) { authority.Put(p.t, dir, "ca.pem", both) },
		func(dir, name, host string) {
			cert, key := next.Sign(p.t, name, host, time.Hour)
			authority.Put(p.t, dir, "cert.pem", cert)
			authority.Put(p.t, dir, "key.pem", key)
		},
		func(dir, _, _ string) { authority.Put(p.t, dir, "ca.pem", next.PEM) },
	} {
		for i, dir := range p.certs {
			change(dir, fmt.Sprint("n", i), p.net.spaces[i].inner)
			must(p.t, p.members[i].Signal(syscall.SIGHUP))
		}
		i := rand.IntN(3) // whose routes are made again, with the new certificates
		p.net.isolate(i)
		await.Pause(8 * time.Second) // longer than its routes last
		p.net.all(way{})
		p.whole()
	}
	p.signer = next
}

// No event passes between members in clear text if they have certificates, and without them all do.
func TestWire(t *testing.T) {
	if testing.Short() {
		t.Skip("starts six processes")
	}
	const count = 40
	for name, secure := range map[string]bool{"certificates": true, "insecure": false} {
		t.Run(name, func(t *testing.T) {
			secret := []byte("what no one on the network may read")
			var clear, packets atomic.Int64
			p := startPartition(t, time.Hour, secure, func(packet []byte) {
				packets.Add(1)
				if bytes.Contains(packet, secret) {
					clear.Add(1)
				}
			})
			var reading sync.WaitGroup
			for _, m := range p.members {
				next, end := events(t, m.url, "topic=t.*&token="+p.token, p.begin)
				defer end()
				reading.Go(func() {
					for i := range count {
						if got, want := next("data: "), fmt.Sprintf("t.1 %d %s", i, secret); got != want {
							t.Errorf("got %q, want %q", got, want)
							return
						}
					}
				})
			}
			for i := range count {
				data := fmt.Sprintf("t.1 %d %s", i, secret)
				until(t, data+" is acknowledged", func() bool { return p.publish("t.1", data, false) })
			}
			reading.Wait()
			switch n := clear.Load(); {
			case packets.Load() == 0:
				t.Error("no packet was seen")
			case secure && n > 0:
				t.Errorf("%d packets of %d have an event in clear text", n, packets.Load())
			case !secure && n < count:
				t.Errorf("%d packets have an event in clear text, want %d", n, count)
			}
			t.Logf("%d packets, %d with an event in clear text", packets.Load(), clear.Load())
		})
	}
}
