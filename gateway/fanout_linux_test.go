package gateway

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/internal/test/idling"
)

var fanoutClients = flag.Int("fanout", 5000, "subscribers of BenchmarkFanout")

// BenchmarkFanout compares the CPU time of an event's deliveries to 5,000 subscribers of Server-Sent Events with that of a
// loop that writes the same bytes to as many sockets. The two alternate in this process; the clients are another. The
// gateway's share includes the publish and JetStream's storage. p50 and p99 are the times from before the publish, or before
// the loop, until a client has read the event.
func BenchmarkFanout(b *testing.B) {
	for _, stalled := range []int{0, 500} {
		b.Run(fmt.Sprintf("stalled=%d", stalled), func(b *testing.B) { benchmarkFanout(b, *fanoutClients, stalled) })
	}
}

func benchmarkFanout(b *testing.B, n, stalled int) {
	idling.Conns = 2*n + stalled
	idling.Enough(b)
	s := newSite(b, b.TempDir(), Config{SlowPolicy: SlowDrop, WriteTimeout: time.Hour, MaxQueued: 16 << 10})
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	defer plain.Close()
	clients := idling.Start(b, "readers", s.url, plain.Addr().String(), strconv.Itoa(n), strconv.Itoa(stalled))
	var sockets []int
	var conns []net.Conn
	for range n {
		conn, err := plain.Accept()
		must(b, err)
		defer conn.Close()
		conns = append(conns, conn)
		raw, err := conn.(*net.TCPConn).SyscallConn()
		must(b, err)
		must(b, raw.Control(func(fd uintptr) { sockets = append(sockets, int(fd)) }))
	}
	if got := clients.Say(""); got != "ready" {
		b.Fatal(got)
	}
	until(b, "all have joined", func() bool { return s.members() == n+2*stalled })
	pad := strings.Repeat("x", 100)
	text := func() []byte { return fmt.Appendf(nil, "%d %s", time.Now().UnixNano(), pad) }
	for s.Stats().Dropped < uint64(stalled) { // until the queues of those that do not read are full
		_, err := s.Publish(context.Background(), "stalled", bytes.Repeat([]byte("x"), 64<<10), "")
		must(b, err)
	}
	var gateway, bare int64
	round := 0
	both := func() {
		round++
		began := idling.CPU()
		_, err := s.Publish(context.Background(), "fan.out", text(), "")
		must(b, err)
		clients.Say(fmt.Sprint("gateway ", round))
		middle := idling.CPU()
		block := (&event.Event{Topic: "fan.out", Data: text(), At: event.Position{Epoch: s.hub.Epoch, Seq: uint64(round)}}).Bytes(event.FormText)
		for _, fd := range sockets {
			if m, err := unix.Write(fd, block); m != len(block) {
				b.Fatal(m, err)
			}
		}
		clients.Say(fmt.Sprint("bare ", round))
		gateway, bare = gateway+middle-began, bare+idling.CPU()-middle
	}
	for range 3 {
		both()
	}
	clients.Say("reset")
	gateway, bare = 0, 0
	for b.Loop() {
		both()
	}
	per := float64(b.N) * float64(n)
	b.ReportMetric(float64(gateway)/per, "gateway-CPU-ns/delivery")
	b.ReportMetric(float64(bare)/per, "bare-CPU-ns/delivery")
	b.ReportMetric(float64(gateway)/float64(bare), "ratio")
	for _, kind := range []string{"gateway", "bare"} {
		var p50, p99 float64
		_, err := fmt.Sscan(clients.Say("times "+kind), &p50, &p99)
		must(b, err)
		b.ReportMetric(p50, kind+"-p50-ms")
		b.ReportMetric(p99, kind+"-p99-ms")
	}
	for _, c := range conns {
		c.Close()
	}
}

// arrivals are the events that the readers of one kind have got.
type arrivals struct {
	mu    sync.Mutex
	more  *sync.Cond
	n     int // of all readers
	times []time.Duration
}

func (a *arrivals) add(line string) {
	stamp, _, ok := strings.Cut(strings.TrimPrefix(line, "data: "), " ")
	sent, err := strconv.ParseInt(stamp, 10, 64)
	if !ok || err != nil {
		return
	}
	a.mu.Lock()
	a.n++
	a.times = append(a.times, time.Duration(time.Now().UnixNano()-sent))
	a.mu.Unlock()
	a.more.Signal()
}

func playReaders(args []string) {
	n, _ := strconv.Atoi(args[2])
	stalled, _ := strconv.Atoi(args[3])
	kinds := map[string]*arrivals{"gateway": {}, "bare": {}}
	for _, a := range kinds {
		a.more = sync.NewCond(&a.mu)
	}
	read := func(a *arrivals, in *bufio.Reader) {
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if strings.HasPrefix(line, "data: ") {
				a.add(line)
			}
		}
	}
	var silent []net.Conn
	for range stalled {
		r, err := openSSE(args[0], "topic=fan.out&topic=stalled", "")
		if err != nil {
			log.Fatal(err)
		}
		silent = append(silent, r.conn)
	}
	for range n {
		r, err := openSSE(args[0], "topic=fan.out", "")
		if err != nil {
			log.Fatal(err)
		}
		r.conn.SetReadDeadline(time.Time{})
		go read(kinds["gateway"], r.in)
		conn, err := net.Dial("tcp", args[1])
		if err != nil {
			log.Fatal(err)
		}
		go read(kinds["bare"], bufio.NewReaderSize(conn, 1024))
	}
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch word, rest, _ := strings.Cut(in.Text(), " "); word {
		case "reset":
			for _, a := range kinds {
				a.times = nil
			}
			fmt.Println()
		case "times":
			a := kinds[rest]
			slices.Sort(a.times)
			ms := func(q float64) float64 { return a.times[int(q*float64(len(a.times)-1))].Seconds() * 1000 }
			fmt.Println(ms(0.5), ms(0.99))
		default:
			rounds, _ := strconv.Atoi(rest)
			a := kinds[word]
			a.mu.Lock()
			for a.n < rounds*n {
				a.more.Wait()
			}
			a.mu.Unlock()
			fmt.Println()
		}
	}
	for _, c := range silent {
		c.Close()
	}
	io.Copy(io.Discard, os.Stdin)
}
