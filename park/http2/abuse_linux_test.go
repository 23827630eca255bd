package http2

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/tunnel"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/idling"
	"github.com/socknotify/socknotify/park"
)

// A client that opens tunnels to a host that does not answer, and resets them, ends the attempts to
// connect: no goroutine and no descriptor is left.
func TestConnectsAreReset(t *testing.T) {
	x := serveTunnels(t, new(tunnel.Tunnels), new(http.Server), false)
	raw, err := x.host.(*net.TCPListener).SyscallConn()
	must(t, err)
	// A second connection finds the queue full, and the kernel drops what begins it.
	must(t, raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }))
	must(t, err)
	first, err := net.Dial("tcp", x.host.Addr().String())
	must(t, err)
	defer first.Close()
	p := dial(t, x.url)
	p.synced()
	const atOnce = 200
	goroutines, before := runtime.NumGoroutine(), descriptors()
	for same := 0; same < 20; { // connections of earlier tests may be closing
		await.Pause(time.Millisecond)
		was := before
		if before = descriptors(); before < was {
			same = 0
		} else {
			same++
		}
	}
	for round := range 10 {
		for i := range atOnce {
			x.connect(p, id(atOnce*round+i))
		}
		must(t, p.send())
		until(t, "the proxy connects", func() bool { return descriptors() >= before+atOnce/2 })
		for i := range atOnce {
			p.WriteRSTStream(id(atOnce*round+i), http2.ErrCodeCancel)
		}
		p.synced()
		until(t, "the attempts have ended", func() bool {
			return descriptors() <= before && runtime.NumGoroutine() <= goroutines+8
		})
	}
	if n := x.Stats().Accepted; n != 0 {
		t.Errorf("%d tunnels", n)
	}
}

// BenchmarkAbuse measures what each case of abuse costs park.HTTPServer and net/http's server, for each byte that the server
// has received: CPU time, and the highest live memory. Each server is a process of its own; in each round both are attacked
// in turn with the same bytes. The figures are medians. Run it with -benchtime 1x for three rounds.
func BenchmarkAbuse(b *testing.B) {
	for _, a := range abuses {
		b.Run(a.name, func(b *testing.B) {
			costs := a.compare(b, 3*b.N, 300*time.Millisecond, 2<<20)
			for i, of := range []string{"", "net/http-"} {
				b.ReportMetric(costs[i].cpu, of+"CPU-ns/B")
				b.ReportMetric(costs[i].memory, of+"memory-B/B")
				b.ReportMetric(costs[i].perConn/1024, of+"KiB/conn")
			}
			b.ReportMetric(costs[0].cpu/costs[1].cpu, "CPU-ratio")
			b.ReportMetric(costs[0].memory/costs[1].memory, "memory-ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// In the cases that once were the worst, park.HTTPServer needs at most twice the CPU time of net/http's server, and twice the
// memory and a few buffers more. BenchmarkAbuse has all cases, and the figures.
func TestAbuseCosts(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector's CPU time and memory would be included")
	}
	if testing.Short() {
		t.Skip("some seconds")
	}
	for _, a := range abuses {
		switch a.name {
		case "CONTINUATION flood, empty", "SETTINGS flood", "SETTINGS flood, long":
			t.Run(a.name, func(t *testing.T) {
				costs := a.compare(t, 1, 50*time.Millisecond, 512<<10)
				t.Logf("%+v, net/http %+v", costs[0], costs[1])
				if c := costs[0].cpu / costs[1].cpu; !(c <= 2) {
					t.Errorf("%.2f times net/http's CPU time", c)
				}
				if ours, theirs := costs[0].perConn, costs[1].perConn; ours > 2*theirs+64<<10 {
					t.Errorf("%.0f bytes of memory for a connection, net/http %.0f", ours, theirs)
				}
			})
		}
	}
}

// abusers is the number of connections that attack at once while the memory is measured.
const abusers = 16

// A cost is what a server needs: nanoseconds for each byte received, and the bytes of memory for each of them and for each
// connection.
type cost struct{ cpu, memory, perConn float64 }

// compare returns the costs of park.HTTPServer and of net/http's server. In each round it attacks for a time to measure the
// CPU time, and once to measure the memory. A client sends about limit bytes at most.
func (a *abuse) compare(t testing.TB, rounds int, d time.Duration, limit int) (costs [2]cost) {
	var cpu, memory, perConn [2][]float64
	var busy, watched [2]*abused
	sent := a.record(limit)
	for i, name := range []string{"http2", "net/http"} {
		busy[i] = newAbused(t, name, a, sent)
		busy[i].cpu(d / 5)
	}
	old, set := os.LookupEnv("GODEBUG")
	os.Setenv("GODEBUG", "gcstoptheworld=1") // otherwise garbage that is made while the collector runs would count as live
	for i, name := range []string{"http2", "net/http"} {
		watched[i] = newAbused(t, name, a, sent)
		watched[i].memory()
	}
	if os.Unsetenv("GODEBUG"); set {
		os.Setenv("GODEBUG", old)
	}
	for round := range rounds {
		for i := range busy {
			i = (i + round) % 2
			cpu[i] = append(cpu[i], busy[i].cpu(d))
			peak, received := watched[i].memory()
			memory[i] = append(memory[i], peak/received)
			perConn[i] = append(perConn[i], peak/abusers)
		}
	}
	for i := range costs {
		costs[i] = cost{median(cpu[i]), median(memory[i]), median(perConn[i])}
	}
	return costs
}

// record returns what the client of one connection sends, about limit bytes at most.
func (a *abuse) record(limit int) []byte {
	p := new(peer)
	p.Framer, p.enc = http2.NewFramer(&p.out, nil), hpack.NewEncoder(&p.block)
	p.AllowIllegalWrites = true
	p.out.WriteString(http2.ClientPreface)
	p.WriteSettings()
	p.WriteSettingsAck()
	if a.begin != nil {
		a.begin(p)
	}
	for i := 0; i < a.rounds && a.round != nil && p.out.Len() < limit; i++ {
		a.round(p, i)
	}
	if !a.held {
		p.WritePing(false, mark)
	}
	return p.out.Bytes()
}

// abused is a server process, and what its clients send.
type abused struct {
	t       testing.TB
	abuse   *abuse
	sent    []byte
	process *idling.Process
	network string
	address string
}

func newAbused(t testing.TB, server string, a *abuse, sent []byte) *abused {
	s := &abused{t: t, abuse: a, sent: sent, network: "tcp", address: "127.0.0.1:0"}
	if a.silent { // as serveUnix says
		dir, err := os.MkdirTemp("", "http2")
		must(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		s.network, s.address = "unix", filepath.Join(dir, "s")
	}
	s.process = idling.Start(t, "abused", server, s.network, s.address)
	s.address = s.process.Say("")
	return s
}

// cpu attacks for a time, and returns the server's CPU time in nanoseconds for each byte.
func (s *abused) cpu(d time.Duration) float64 {
	n := 1
	if s.abuse.held {
		n = abusers // an attack takes long
	}
	s.process.Say("cpu")
	for end := time.Now().Add(d); time.Now().Before(end); {
		s.attack(n)
	}
	spent, received := s.result()
	return spent / received
}

// memory attacks once, and returns the highest live memory of the server, less what it had before, and the bytes that it has
// received.
func (s *abused) memory() (peak, received float64) {
	s.process.Say("memory")
	s.attack(abusers)
	return s.result()
}

func (s *abused) result() (cost, received float64) {
	_, err := fmt.Sscan(s.process.Say("result"), &cost, &received)
	must(s.t, err)
	return cost, received
}

// attack makes n connections, and returns when they have ended.
func (s *abused) attack(n int) {
	var sent, ended sync.WaitGroup
	held := make(chan bool)
	sent.Add(n)
	for range n {
		ended.Go(func() {
			if err := s.attackOnce(&sent, held); err != nil {
				s.t.Error(err)
			}
		})
	}
	sent.Wait()
	if s.abuse.held {
		time.Sleep(300 * time.Millisecond) // net/http in another process cannot say that it has handled all
	}
	close(held)
	ended.Wait()
}

// attackOnce is what a bad client does with one connection: it sends until everything is sent, or until the server sends
// GOAWAY or closes the connection. Then it waits for the answer after the last round, if there is one.
func (s *abused) attackOnce(sent *sync.WaitGroup, held <-chan bool) error {
	done := sync.OnceFunc(sent.Done)
	defer done()
	conn, err := net.Dial(s.network, s.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(timeout))
	var over atomic.Bool
	ended := make(chan bool)
	if s.abuse.silent {
		close(ended)
	} else {
		go func() {
			lastAnswer(bufio.NewReaderSize(conn, 64<<10), false)
			over.Store(true)
			close(ended)
		}()
	}
	for rest := s.sent; len(rest) > 0 && err == nil && !over.Load(); {
		n := 0
		n, err = conn.Write(rest[:min(len(rest), 16<<10)])
		rest = rest[n:]
	}
	if s.abuse.held {
		done()
		<-held
		conn.Close()
	}
	<-ended
	return nil
}

// playAbused is the server. It begins to measure at "cpu" or "memory", and answers "result".
func playAbused(args []string) {
	ln, err := net.Listen(args[1], args[2])
	if err != nil {
		panic(err)
	}
	hs := &http.Server{Handler: newAbusedHandler()}
	hs.ErrorLog = log.New(io.Discard, "", 0)
	hs.Protocols = new(http.Protocols)
	hs.Protocols.SetUnencryptedHTTP2(true)
	var s httpServer = hs
	if args[0] == "http2" {
		s = &park.HTTPServer{Server: hs, HTTP2: &Server{ExtendedConnect: true}}
	}
	go s.Serve(ln)
	fmt.Println(ln.Addr())
	in := bufio.NewScanner(os.Stdin)
	var cost func() int64
	var received int64
	for in.Scan() {
		switch in.Text() {
		case "cpu":
			before := idling.CPU()
			cost = func() int64 { return idling.CPU() - before }
		case "memory":
			cost = watchMemory(settle())
		case "result":
			fmt.Println(cost(), bytesRead()-received)
			continue
		}
		received = bytesRead()
		fmt.Println()
	}
}

// settle waits until the memory falls no more, and returns it. net/http closes a connection 250 milliseconds after GOAWAY.
func settle() int64 {
	m := liveMemory()
	for {
		time.Sleep(300 * time.Millisecond) // longer than net/http's timer
		was := m
		if m = liveMemory(); m+8<<10 > was {
			return m
		}
	}
}

// watchMemory watches the live memory, until the function that it returns is called; that returns the highest, less base.
func watchMemory(base int64) (stop func() int64) {
	end, peak := make(chan bool), make(chan int64)
	go func() {
		highest := base
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for {
			highest = max(highest, liveMemory())
			select {
			case <-end:
				peak <- highest - base
				return
			case <-ticker.C:
			}
		}
	}()
	return func() int64 {
		close(end)
		return <-peak
	}
}

// liveMemory collects garbage, and returns the bytes of the objects that were reached and of the stacks.
func liveMemory() int64 {
	runtime.GC()
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() + samples[1].Value.Uint64())
}

// bytesRead returns how many bytes the process has read by system calls.
func bytesRead() (n int64) {
	b, err := os.ReadFile("/proc/self/io")
	if err == nil {
		_, err = fmt.Sscanf(string(b), "rchar: %d", &n)
	}
	if err != nil {
		panic(err)
	}
	return n
}
