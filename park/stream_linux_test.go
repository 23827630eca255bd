package park

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/socknotify/socknotify/internal/idling"
)

// BenchmarkStream measures the CPU time that a server spends on a stream of bytes, with parked connections and with
// a goroutine per connection. Compare results within one run only. The server is a separate process. It is the echo
// server of docs/park.md, or a proxy with TLS on both sides in front of an echo server. ratio is the CPU time with
// parking divided by that with goroutines.
func BenchmarkStream(b *testing.B) {
	const total = 100 << 20
	for _, kind := range streamKinds {
		b.Run(kind.name, func(b *testing.B) {
			var cpu [2]float64
			var n int
			for b.Loop() {
				for i, how := range []string{"goroutine", "park"} {
					cpu[i] += streamCPU(b, how, kind, total)
				}
				n++
			}
			b.ReportMetric(cpu[0]/1e6/float64(n), "goroutine-CPU-ms")
			b.ReportMetric(cpu[1]/1e6/float64(n), "park-CPU-ms")
			b.ReportMetric(cpu[1]/cpu[0], "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// streamCPU sends bytes through a server and returns the CPU time of the server in nanoseconds.
func streamCPU(b *testing.B, how string, kind streamKind, total int) float64 {
	backend, stop := "", func() {}
	if kind.proxy {
		backend, stop = echoTLS(b)
	}
	defer stop()
	server := idling.Start(b, "stream", how, kind.name, backend)
	conn, err := net.Dial("tcp", server.Say(""))
	must(b, err)
	if kind.secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	defer conn.Close()
	exchangeBytes(b, conn, 1<<20) // includes handshakes and the growth of buffers and stacks
	cpu := func() (n float64) {
		_, err := fmt.Sscan(server.Say("cpu"), &n)
		must(b, err)
		return n
	}
	before := cpu()
	exchangeBytes(b, conn, total)
	return cpu() - before
}

type streamKind struct {
	name          string
	secure, proxy bool
	wrap          func(net.Conn) net.Conn
}

var streamKinds = []streamKind{
	{name: "TCP"},
	{name: "wrapper", wrap: buffered},
	{name: "TLS", secure: true},
	{name: "TLS proxy", secure: true, proxy: true},
}

// runStreamServer is the main function of the server process.
func runStreamServer(how, name, backend string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	lot, err := New(Config{})
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{makeCertificate()}}
	for _, k := range streamKinds {
		if k.name != name {
			continue
		}
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				if k.secure {
					conn = tls.Server(conn, config)
				}
				if k.wrap != nil {
					conn = k.wrap(conn)
				}
				to := conn
				if k.proxy {
					if to, err = tls.Dial("tcp", backend, &tls.Config{InsecureSkipVerify: true}); err != nil {
						log.Fatal(err)
					}
					copyBytes(how, lot, to, conn)
				}
				copyBytes(how, lot, conn, to)
			}
		}()
	}
	fmt.Println(ln.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(idling.CPU())
	}
}

// copyBytes starts copying, with parking or with a goroutine.
func copyBytes(how string, lot *Lot, from, to net.Conn) {
	if how == "park" {
		if err := lot.Park(from, copier(lot, to, nil)); err != nil {
			log.Fatal(err)
		}
		return
	}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := from.Read(buf)
			if err == nil {
				_, err = to.Write(buf[:n])
			}
			if err != nil {
				from.Close()
				to.Close()
				return
			}
		}
	}()
}

// echoTLS starts an echo server with TLS in this process.
func echoTLS(b *testing.B) (address string, stop func()) {
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate(b)}})
	must(b, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		io.Copy(conn, conn)
	})
	return ln.Addr().String(), func() {
		ln.Close()
		serving.Wait()
	}
}
