package tunnel

import (
	"bufio"
	"bytes"
	"crypto/tls"
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

	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/idling"
)

// The ways to join a client and a backend that the benchmarks compare. For plain connections
// io.Copy has the kernel move the bytes (splice). httputil.ReverseProxy cannot do that, and copies
// through 32 KiB.
var joinings = []string{"io.Copy", "io.Copy through 32 KiB", "tunnel"}

// BenchmarkTunnelBulk measures the CPU time of a proxy that joins one pair of connections, or a
// hundred, each of which carries 20 MiB in each direction at the same time. An op is all of that.
// Both ends are in another process. Compare within one run.
func BenchmarkTunnelBulk(b *testing.B) {
	for _, pairs := range []int{1, 100} {
		benchJoinings(b, strconv.Itoa(pairs), func(b *testing.B, how string, secure bool) {
			proxy, ends := startJoining(b, how, secure, pairs)
			bulk := fmt.Sprint("bulk ", 20<<20)
			ends.Say("bulk 1000000") // stacks and buffers grow
			before := proxy.cpu()
			for b.Loop() {
				ends.Say(bulk)
			}
			b.ReportMetric(float64(proxy.cpu()-before)/float64(b.N), "cpu-ns/op")
			b.SetBytes(int64(pairs) * 2 * 20 << 20)
		})
	}
}

// BenchmarkTunnelMessages measures the CPU time of a proxy with 5,000 pairs of connections. One in
// a hundred of them carries a message of 64 bytes and its answer, again and again; the others are
// idle. An op is 20,000 messages and their answers. Compare within one run.
func BenchmarkTunnelMessages(b *testing.B) {
	benchJoinings(b, strconv.Itoa(idling.Conns), func(b *testing.B, how string, secure bool) {
		idling.Descriptors(b, descriptors(how, secure)*idling.Conns)
		proxy, ends := startJoining(b, how, secure, idling.Conns)
		ends.Say("messages 1000")
		before := proxy.cpu()
		var p50, p99, m, n float64
		for b.Loop() {
			_, err := fmt.Sscan(ends.Say("messages 20000"), &m, &n)
			check.OK(b, err)
			p50, p99 = p50+m, p99+n
		}
		times := float64(b.N)
		b.ReportMetric(float64(proxy.cpu()-before)/times/20000, "cpu-ns/message")
		b.ReportMetric(p50/times, "p50-µs")
		b.ReportMetric(p99/times, "p99-µs")
	})
}

// descriptors returns how many a proxy needs for a pair of connections. An io.Copy that waits in
// splice keeps a pipe.
func descriptors(how string, secure bool) int {
	if how == "io.Copy" && !secure {
		return 6
	}
	return 2
}

func benchJoinings(b *testing.B, name string, f func(b *testing.B, how string, secure bool)) {
	for _, secure := range []bool{false, true} {
		kind := map[bool]string{true: "TLS"}[secure]
		for _, how := range joinings {
			if secure && strings.HasSuffix(how, "KiB") {
				continue // io.Copy does the same
			}
			b.Run(strings.TrimPrefix(kind+"/", "/")+name+"/"+how, func(b *testing.B) { f(b, how, secure) })
		}
	}
}

// A joiningProxy is the process of a proxy.
type joiningProxy struct {
	*idling.Process
	b *testing.B
}

func (p joiningProxy) cpu() int64 {
	n, err := strconv.ParseInt(p.Say("cpu"), 10, 64)
	check.OK(p.b, err)
	return n
}

// startJoining starts a proxy, and a process with both ends of its connections.
func startJoining(b *testing.B, how string, secure bool, pairs int) (joiningProxy, *idling.Process) {
	ends := idling.Start(b, "ends", strconv.Itoa(pairs), strconv.FormatBool(secure))
	proxy := idling.Start(b, "joining", how, strconv.FormatBool(secure), ends.Say(""))
	if got := ends.Say(proxy.Say("")); got != "ready" {
		b.Fatalf("%q", got)
	}
	return joiningProxy{proxy, b}, ends
}

// runJoining is the main function of a proxy.
func runJoining(how string, secure bool, backend string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{conntest.MakeCertificate()}}
	var g Tunnels
	relay := func(to, from net.Conn) {
		if how == "io.Copy" {
			io.Copy(to, from)
		} else {
			io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
		}
	}
	go func() {
		for {
			a, err := ln.Accept()
			if err != nil {
				log.Fatal(err)
			}
			b, err := net.Dial("tcp", backend)
			if err != nil {
				log.Fatal(err)
			}
			if how == "tunnel" {
				if secure {
					a = park.TLSServer(a, config)
				}
				if err := g.Join(a, b); err != nil {
					log.Fatal(err)
				}
				continue
			}
			if secure {
				a = tls.Server(a, config)
			}
			go relay(b, a)
			go relay(a, b)
		}
	}()
	idling.Serve(ln, nil)
}

// joinedEnds are both ends of a proxy's pair of connections.
type joinedEnds struct{ client, backend net.Conn }

// runEnds has the clients and the backend of a proxy, whose address is the first line of input. It
// prints its own address first.
func runEnds(pairs int, secure bool) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ln.Addr())
	lines := bufio.NewScanner(os.Stdin)
	lines.Scan()
	all := make([]joinedEnds, pairs)
	for i := range all {
		all[i].connect(ln, lines.Text(), secure)
	}
	fmt.Println("ready")
	for lines.Scan() {
		what, number, _ := strings.Cut(lines.Text(), " ")
		n, _ := strconv.Atoi(number)
		if what == "bulk" {
			exchangeBulk(all, n)
			fmt.Println("done")
			continue
		}
		took := exchangeMessages(all, n)
		at := func(q float64) float64 {
			return float64(took[int(q*float64(len(took)-1))].Nanoseconds()) / 1000
		}
		fmt.Println(at(0.5), at(0.99))
	}
}

// connect makes a pair of connections, with a byte each way.
func (e *joinedEnds) connect(ln net.Listener, proxy string, secure bool) {
	var err error
	if e.client, err = idling.Dial(proxy, secure); err != nil {
		log.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() { // with TLS the handshake, for which the proxy may have to connect first
		_, err := e.client.Write([]byte{1})
		sent <- err
	}()
	ln.(*net.TCPListener).SetDeadline(time.Now().Add(conntest.Timeout)) // the proxy may have failed
	if e.backend, err = ln.Accept(); err != nil {
		log.Fatal(err)
	}
	if err := <-sent; err != nil {
		log.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err = io.ReadFull(e.backend, b); err == nil {
		if _, err = e.backend.Write(b); err == nil {
			_, err = io.ReadFull(e.client, b)
		}
	}
	if err != nil {
		log.Fatal(err)
	}
}

// exchangeBulk sends n bytes from each end of each pair.
func exchangeBulk(pairs []joinedEnds, n int) {
	text := make([]byte, 64<<10)
	var all sync.WaitGroup
	for _, e := range pairs {
		for _, conn := range []net.Conn{e.client, e.backend} {
			all.Go(func() {
				for left := n; left > 0; left -= len(text) {
					if _, err := conn.Write(text[:min(left, len(text))]); err != nil {
						log.Fatal(err)
					}
				}
			})
			all.Go(func() {
				buf := make([]byte, 64<<10)
				for left := n; left > 0; {
					got, err := conn.Read(buf[:min(left, len(buf))])
					if err != nil {
						log.Fatal(err)
					}
					left -= got
				}
			})
		}
	}
	all.Wait()
}

// exchangeMessages exchanges n messages and their answers on one in a hundred of the pairs, with
// one outstanding on each. It returns how long they took, in order.
func exchangeMessages(pairs []joinedEnds, n int) (took []time.Duration) {
	active := max(1, len(pairs)/100)
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range active {
		e := pairs[i*len(pairs)/active]
		all.Go(func() {
			buf := make([]byte, 64)
			for range n / active {
				if _, err := io.ReadFull(e.backend, buf); err != nil {
					log.Fatal(err)
				}
				e.backend.Write(buf)
			}
		})
		all.Go(func() {
			message, buf := bytes.Repeat([]byte{'x'}, 64), make([]byte, 64)
			var mine []time.Duration
			for range n / active {
				sent := time.Now()
				e.client.Write(message)
				if _, err := io.ReadFull(e.client, buf); err != nil {
					log.Fatal(err)
				}
				mine = append(mine, time.Since(sent))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
		})
	}
	all.Wait()
	slices.Sort(took)
	return took
}
