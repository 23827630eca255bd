package gateway

import (
	"context"
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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/internal/test/await"
)

var (
	chaosTime    = flag.Duration("chaos", 0, "how long TestCluster kills and pauses nodes; 0 skips it")
	chaosEvery   = flag.Duration("chaos.every", 10*time.Second, "time between two kills; a pause comes between them")
	chaosPause   = flag.Duration("chaos.pause", 5*time.Millisecond, "time between two events of a publisher")
	chaosClients = flag.Int("chaos.clients", 60, "clients of TestCluster")
	chaosTopics  = flag.Int("chaos.topics", 20, "topics of TestCluster")
)

// A member is a process of the command socknotify-push.
type member struct {
	t       *testing.T
	binary  string
	args    []string
	url     string
	log     *os.File
	process *exec.Cmd
	killed  atomic.Bool
	waiting sync.WaitGroup
}

func (m *member) start() {
	m.process = exec.Command(m.binary, m.args...)
	m.process.Stderr = m.log
	m.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(m.t, m.process.Start())
	m.killed.Store(false)
	m.waiting.Go(func() {
		if err := m.process.Wait(); !m.killed.Load() {
			m.t.Errorf("%s has ended by itself: %v", m.url, err)
		}
	})
}

func (m *member) kill() {
	m.killed.Store(true)
	m.process.Process.Kill()
	m.waiting.Wait()
}

func (m *member) signal(s os.Signal) { must(m.t, m.process.Process.Signal(s)) }

func (m *member) ready() bool {
	c := http.Client{Transport: roundTripper, Timeout: 2 * time.Second}
	r, err := c.Get(m.url + "/readyz")
	if err != nil {
		return false
	}
	r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// buildCommand builds the command, with the race detector if the test has it.
func buildCommand(t *testing.T) string {
	binary := filepath.Join(t.TempDir(), "socknotify-push")
	args := []string{"build", "-o", binary}
	if raceDetector {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "./cmd/socknotify-push")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// startCluster starts three members and waits until they are ready.
func startCluster(t *testing.T, heartbeat time.Duration, more ...string) []*member {
	binary := buildCommand(t)
	// Each member has an address of its own, which no client has. Otherwise a client could have the port of a member that is
	// about to be started again.
	var addrs []string
	for i := range 6 {
		_, port, err := net.SplitHostPort(freeAddr(t))
		must(t, err)
		addrs = append(addrs, fmt.Sprintf("127.0.0.%d:%s", 11+i%3, port))
	}
	var members []*member
	for i := range 3 {
		log, err := os.Create(filepath.Join(t.TempDir(), "log"))
		must(t, err)
		m := &member{t: t, binary: binary, url: "http://" + addrs[i], log: log, args: []string{
			"--addr", addrs[i], "--name", fmt.Sprint("n", i), "--store", t.TempDir(), "--cluster", addrs[3+i],
			"--routes", strings.Join(addrs[3:], ","), "--heartbeat", heartbeat.String(), "--retry", "1s",
			"--drain", "1s", "--log-level", "debug"}}
		m.args = append(m.args, more...)
		m.start()
		members = append(members, m)
		t.Cleanup(func() {
			m.kill()
			if t.Failed() {
				b, _ := os.ReadFile(log.Name())
				t.Logf("log of %s:\n%s", m.url, b[max(0, len(b)-8000):])
			}
			log.Close()
		})
	}
	for _, m := range members {
		until(t, "a member is ready", m.ready)
	}
	return members
}

// A follower is a client that moves between the members, and checks that it gets each event of its topics once and in order.
type follower struct {
	t       *testing.T
	way     int
	filters []string
	members []*member
	after   string
	next    map[string]int // by publisher and topic, the number of the next event
	got     atomic.Int64
	moves   int
	failed  error
}

func (f *follower) open(m *member) (reader, error) {
	topics := url.Values{"topic": f.filters}.Encode()
	switch f.way % 3 {
	case 0:
		r, err := openSSE(m.url, topics, f.after)
		if err != nil {
			return nil, err
		}
		f.after = r.lastID
		return r, nil
	case 1:
		r, err := openWS(m.url, topics+"&after="+f.after)
		if err != nil {
			return nil, err
		}
		if r.first.Gap != "" {
			f.failed = errors.New("gap at the beginning: " + r.first.Gap)
		}
		f.after = r.first.Last[0]
		return r, nil
	}
	if f.after == "" { // the first poll would begin when it is answered
		r, err := openSSE(m.url, topics, "")
		if err != nil {
			return nil, err
		}
		f.after = r.lastID
		r.close()
	}
	return &pollReader{url: m.url, topics: f.filters, after: []string{f.after}}, nil
}

// follow follows until total events have come.
func (f *follower) follow(total func() int64, joined *sync.WaitGroup) {
	first := true
	for f.failed == nil && f.got.Load() < total() {
		r, err := f.open(f.members[rand.IntN(len(f.members))])
		if err != nil {
			await.Pause(50 * time.Millisecond)
			continue
		}
		if first {
			first = false
			joined.Done()
		}
		f.moves++
		for stay := 5 + rand.IntN(50); stay > 0 && f.failed == nil && f.got.Load() < total(); stay-- {
			m, err := r.next()
			if err != nil {
				await.Pause(50 * time.Millisecond) // a poll of a member that has ended fails at once
				break
			}
			f.check(m)
		}
		if r, ok := r.(*sseReader); ok && f.failed == nil {
			f.after = r.lastID // it moves on without events, too
		}
		r.close()
	}
}

func (f *follower) check(m message) {
	from, number, _ := strings.Cut(m.Data, " ")
	if from == "end" { // of each topic
		from, number = m.ID, "0"
	}
	n, err := strconv.Atoi(number)
	switch {
	case m.Gap != "" || m.name == "gap":
		f.failed = fmt.Errorf("gap: %+v", m)
	case err != nil:
		f.failed = fmt.Errorf("strange event: %+v", m)
	case n != f.next[from]:
		f.failed = fmt.Errorf("%+v after %s: want number %d of %s", m, f.after, f.next[from], from)
	default:
		f.next[from]++
		f.after = m.ID
		f.got.Add(1)
	}
}

// A liveFollower is a client of live topics that moves between the members. It may miss events, and counts those that it has
// missed while it was connected. On one connection it must get none twice, and those of a publisher in order. Another member
// may be behind.
type liveFollower struct {
	members   []*member
	got, lost int
	failed    error
}

func (f *liveFollower) follow(ending func() bool) {
	for f.failed == nil && !ending() {
		r, err := openWS(f.members[rand.IntN(len(f.members))].url, "topic=live.*")
		if err != nil {
			await.Pause(50 * time.Millisecond)
			continue
		}
		last := map[string]int{} // by publisher and topic
		for stay := 200 + rand.IntN(2000); stay > 0 && f.failed == nil && !ending(); stay-- {
			m, err := r.next()
			if err != nil {
				break
			}
			from, number, _ := strings.Cut(m.Data, " ")
			n, err := strconv.Atoi(number)
			if err != nil || m.ID != "" || n <= last[from] {
				f.failed = fmt.Errorf("%+v after number %d", m, last[from])
			}
			if last[from] > 0 {
				f.lost += n - last[from] - 1
			}
			last[from] = n
			f.got++
		}
		r.close()
	}
}

// Three members are killed and paused, one after the other, while clients move between them and publishers publish to each.
// Every event that was acknowledged reaches each of its clients once, and in order. With -chaos 10m -chaos.every 1m
// -chaos.clients 6000 -chaos.topics 200 it takes as long and is as large as an operator would try it.
func TestCluster(t *testing.T) {
	if *chaosTime == 0 {
		t.Skip("it takes long, and is asked for by -chaos; .ci/soak runs it")
	}
	heartbeat := 500 * time.Millisecond * time.Duration(1+*chaosClients/1500)
	readTimeout = 2*time.Second + 2*heartbeat // a paused member says nothing
	defer func() { readTimeout = 2 * time.Minute }()
	members := startCluster(t, heartbeat)
	var published [4096]atomic.Int64 // by topic
	var all atomic.Int64
	var ending atomic.Bool
	var followers []*follower
	var joined, following, publishing sync.WaitGroup
	topicName := func(i int) string { return fmt.Sprintf("t.%d.%d", i/10, i%10) }
	for i := range *chaosClients {
		topic := i % *chaosTopics
		f := &follower{t: t, way: i / 2, filters: []string{topicName(topic)}, members: members, next: map[string]int{}}
		count := published[topic].Load
		switch {
		case i%100 == 98:
			f.filters, count = []string{"t.>"}, all.Load
		case i%10 == 9:
			group := published[topic/10*10 : min(topic/10*10+10, *chaosTopics)]
			f.filters = []string{fmt.Sprintf("t.%d.*", topic/10)}
			count = func() (n int64) {
				for i := range group {
					n += group[i].Load()
				}
				return n
			}
		case i%10 == 6: // the topic, and the last of the next group
			second := (topic/10*10 + 19) % *chaosTopics
			f.way, f.filters = 0, append(f.filters, topicName(second), "t.none.*")
			count = func() int64 { return published[topic].Load() + published[second].Load() }
		}
		total := func() int64 {
			if !ending.Load() {
				return 1 << 60
			}
			return count()
		}
		followers = append(followers, f)
		joined.Add(1)
		following.Go(func() { f.follow(total, &joined) })
	}
	joined.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), *chaosTime)
	defer cancel()
	var retries, longest atomic.Int64
	client := http.Client{Transport: roundTripper, Timeout: 8 * time.Second}
	for p := range members {
		publishing.Go(func() {
			numbers := make([]int, *chaosTopics)
			for i := 0; ctx.Err() == nil; i++ {
				topic := i % *chaosTopics
				text := fmt.Sprintf("p%d.t%d %d", p, topic, numbers[topic])
				began, said := time.Now(), ""
				for at := p; ; at++ { // until it is acknowledged, by any member
					path := "/publish?topic=" + topicName(topic)
					r, _ := http.NewRequest("POST", members[at%3].url+path, strings.NewReader(text))
					r.Header.Set("Idempotency-Key", text)
					answer, err := client.Do(r)
					if err == nil {
						b, _ := io.ReadAll(answer.Body)
						answer.Body.Close()
						if answer.StatusCode == http.StatusOK {
							break
						}
						err = fmt.Errorf("%s: %s", answer.Status, b)
					}
					said = err.Error()
					retries.Add(1)
					await.Pause(20 * time.Millisecond)
				}
				took := time.Since(began)
				if took > 20*time.Second {
					t.Logf("%s: an event was acknowledged after %v; before that: %s", time.Now(), took, said)
				}
				longest.Store(max(longest.Load(), int64(took)))
				numbers[topic]++
				published[topic].Add(1)
				all.Add(1)
				await.Pause(*chaosPause)
			}
		})
	}
	var liveFollowers []*liveFollower
	var livePublished atomic.Int64
	for range min(max(*chaosClients/20, 2), 30) {
		f := &liveFollower{members: members}
		liveFollowers = append(liveFollowers, f)
		following.Go(func() { f.follow(ending.Load) })
	}
	for p, m := range members {
		publishing.Go(func() {
			numbers := make([]int, *chaosTopics)
			for i := 0; ctx.Err() == nil; i++ {
				topic := i % *chaosTopics
				path := fmt.Sprint("/publish?topic=live.", topic)
				text := fmt.Sprintf("p%d.t%d %d", p, topic, numbers[topic]+1)
				answer, err := client.Post(m.url+path, "text/plain", strings.NewReader(text))
				if err == nil {
					answer.Body.Close()
				}
				var failed *net.OpError
				if errors.As(err, &failed) && failed.Op == "dial" || err == nil && answer.StatusCode != http.StatusAccepted {
					await.Pause(20 * time.Millisecond) // it was not published
					continue
				}
				numbers[topic]++ // published, or perhaps: it must not be published twice
				if err == nil {
					livePublished.Add(1)
				}
				await.Pause(*chaosPause)
			}
		})
	}
	kills, pauses := 0, 0
	ticker := time.NewTicker(*chaosEvery / 2)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		m := members[i%3]
		if i%2 == 0 {
			m.kill()
			kills++
			await.Pause(time.Second)
			m.start()
		} else {
			m.signal(syscall.SIGSTOP)
			pauses++
			await.Pause(time.Second + rand.N(*chaosEvery/5))
			m.signal(syscall.SIGCONT)
		}
		until(t, "the member is ready again", m.ready)
	}
	publishing.Wait()
	for topic := range *chaosTopics { // the last event of each topic ends a client that has all others
		published[topic].Add(1)
		all.Add(1)
	}
	ending.Store(true)
	said := "" // by the member that does not acknowledge an event
	defer func() {
		if t.Failed() {
			t.Log("the last answer to a publisher:", said)
		}
	}()
	for topic := range *chaosTopics {
		until(t, "the last event is acknowledged", func() bool {
			path := "/publish?topic=" + topicName(topic)
			answer, err := client.Post(members[0].url+path, "text/plain", strings.NewReader("end 0"))
			if err != nil {
				said = err.Error()
				return false
			}
			defer answer.Body.Close()
			b, _ := io.ReadAll(answer.Body)
			said = answer.Status + ": " + string(b)
			return answer.StatusCode == http.StatusOK
		})
	}
	done := make(chan struct{})
	go func() {
		following.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(3 * time.Minute): // and the test reports what each follower lacks
		for i, f := range followers {
			t.Logf("client %d, way %d, %s: %d events, at %s", i, f.way%3, f.filters, f.got.Load(), f.after)
		}
		t.Fatalf("timed out waiting for %d events", all.Load())
	}
	var moves int
	var got int64
	for i, f := range followers {
		moves += f.moves
		got += f.got.Load()
		if f.failed != nil {
			t.Errorf("client %d, way %d, %s: %v", i, f.way%3, f.filters, f.failed)
		}
	}
	t.Logf("%d events acknowledged after %d retries, the longest after %v; %d received by %d clients that connected %d times, "+
		"%d kills, %d pauses", all.Load(), retries.Load(), time.Duration(longest.Load()), got, len(followers), moves, kills, pauses)
	liveGot, lost := 0, 0
	for i, f := range liveFollowers {
		liveGot += f.got
		lost += f.lost
		if f.failed != nil || f.got == 0 {
			t.Errorf("client %d of live topics: %d events, %v", i, f.got, f.failed)
		}
	}
	shorter := 0
	for _, m := range members {
		b, err := os.ReadFile(m.log.Name())
		must(t, err)
		shorter += strings.Count(string(b), hub.ErrBackwards.Error())
	}
	t.Logf("%d audits have found a shorter stream", shorter)
	t.Logf("%d live events, %d received by %d clients, which missed %d while they were connected", livePublished.Load(),
		liveGot, len(liveFollowers), lost)
}
