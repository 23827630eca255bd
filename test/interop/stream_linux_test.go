package interop

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/socknotify/socknotify/internal/test/idling"
	"github.com/socknotify/socknotify/park"
)

// A streamKind is a server of streams. It answers what it receives, or is a proxy in both directions in front of an echo
// server. With TLS a proxy has TLS on both sides.
type streamKind struct {
	wrapper
	secure, proxy bool
}

var streamKinds = func() (kinds []streamKind) {
	plain := wrapper{name: "TCP", wrap: unwrapped}
	for _, k := range []streamKind{{plain, false, false}, {plain, true, false}} {
		kinds = append(kinds, k, streamKind{k.wrapper, k.secure, true})
	}
	for _, w := range wrappers {
		kinds = append(kinds, streamKind{w, false, false}, streamKind{w, false, true})
	}
	return kinds
}()

func unwrapped(_ testing.TB, ln net.Listener) net.Listener { return ln }

func (k streamKind) String() string {
	name, what := k.name, "echo"
	if k.secure {
		name = "TLS"
	}
	if k.proxy {
		what = "proxy"
	}
	return name + " " + what
}

// BenchmarkStream measures the CPU time that a server spends on 20 MiB in each direction of one connection: with a
// goroutine for each connection, with a Lot and the function of docs/park.md, and with a Server. Compare results within one
// run only. The server is a process of its own. ratio is the CPU time divided by that with goroutines, both as sums of all
// iterations, so use -benchtime 5x or more.
func BenchmarkStream(b *testing.B) {
	for _, k := range streamKinds {
		b.Run(k.String(), func(b *testing.B) {
			hows := []string{"goroutine", "lot", "server"}
			cpu := make(map[string]float64)
			n := 0
			for b.Loop() {
				for _, how := range hows {
					cpu[how] += streamCPU(b, how, k, 20<<20)
				}
				n++
			}
			b.ReportMetric(cpu["goroutine"]/1e6/float64(n), "goroutine-CPU-ms")
			for _, how := range hows[1:] {
				b.ReportMetric(cpu[how]/cpu["goroutine"], how+"-ratio")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// streamCPU sends bytes through a server and returns the CPU time of the server in nanoseconds.
func streamCPU(t testing.TB, how string, k streamKind, total int) float64 {
	backend, stop := "", func() {}
	if k.proxy {
		backend, stop = startEcho(t, k.secure)
	}
	defer stop()
	server := idling.Start(t, "stream", how, k.String(), backend)
	conn, err := net.Dial("tcp", server.Say(""))
	must(t, err)
	defer func() { conn.Close() }()
	_, err = io.WriteString(conn, k.header)
	must(t, err)
	if k.secure {
		conn = tls.Client(conn, insecureTLS)
	}
	exchangeBytes(t, conn, 1<<20) // includes handshakes and the growth of buffers and stacks
	cpu := func() (n float64) {
		_, err := fmt.Sscan(server.Say("cpu"), &n)
		must(t, err)
		return n
	}
	before := cpu()
	exchangeBytes(t, conn, total)
	return cpu() - before
}

var insecureTLS = &tls.Config{InsecureSkipVerify: true}

// exchangeBytes sends total bytes and concurrently receives as many.
func exchangeBytes(t testing.TB, conn net.Conn, total int) {
	t.Helper()
	text := make([]byte, 32<<10)
	for i := range text {
		text[i] = byte(i) ^ byte(i>>8)
	}
	sent := make(chan error, 1)
	go func() {
		var err error
		for n := 0; n < total && err == nil; n += len(text) {
			_, err = conn.Write(text)
		}
		sent <- err
	}()
	got := make([]byte, len(text))
	for n := 0; n < total; n += len(text) {
		if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, text) {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
	must(t, <-sent)
}

// startEcho starts an echo server for one connection in this process.
func startEcho(t testing.TB, secure bool) (address string, stop func()) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	if secure {
		ln = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{certificate()}})
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if conn, err := ln.Accept(); err == nil {
			io.Copy(conn, struct{ io.Reader }{conn})
			conn.Close()
		}
	})
	return ln.Addr().String(), func() {
		ln.Close()
		serving.Wait()
	}
}

// runStreamServer is the main function of the server process.
func runStreamServer(args []string) {
	how, name, backend := args[0], args[1], args[2]
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	lot, err := park.New(park.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for _, k := range streamKinds {
		if k.String() == name {
			s := &streamServer{kind: k, how: how, backend: backend, lot: lot}
			go s.serve(ln)
		}
	}
	fmt.Println(ln.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(idling.CPU())
	}
}

type streamServer struct {
	kind         streamKind
	how, backend string
	lot          *park.Lot
}

func (s *streamServer) serve(ln net.Listener) {
	l := s.kind.wrap(nil, ln)
	config := &tls.Config{Certificates: []tls.Certificate{certificate()}}
	if s.how == "server" {
		server := park.Server{Handler: func(conn net.Conn) error { return copySome(conn, conn) }, TLSConfig: config}
		if s.kind.proxy {
			server.Open = func(conn net.Conn) (func(net.Conn) error, error) {
				out := s.dial()
				s.start(out, conn)
				return func(conn net.Conn) error {
					err := copySome(out, conn)
					if err != nil {
						s.lot.CloseConn(out)
					}
					return err
				}, nil
			}
		}
		serve := server.Serve
		if s.kind.secure {
			serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
		}
		log.Fatal(serve(l))
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		if s.kind.secure {
			conn = tls.Server(conn, config)
		}
		conn = park.Wrap(conn)
		if s.kind.proxy {
			out := s.dial()
			s.start(conn, out)
			s.start(out, conn)
		} else {
			s.start(conn, conn)
		}
	}
}

// dial connects to the backend.
func (s *streamServer) dial() net.Conn {
	var conn net.Conn
	var err error
	if s.kind.secure {
		conn, err = tls.Dial("tcp", s.backend, insecureTLS)
	} else {
		conn, err = net.Dial("tcp", s.backend)
	}
	if err != nil {
		log.Fatal(err)
	}
	return park.Wrap(conn)
}

// start starts to copy, with a goroutine or with parking.
func (s *streamServer) start(from, to net.Conn) {
	if s.how == "goroutine" {
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
		return
	}
	var serve func(net.Conn)
	serve = func(conn net.Conn) {
		err := copySome(to, conn)
		if err == nil {
			err = s.lot.Park(conn, serve)
		}
		if err != nil {
			conn.Close()
			s.lot.CloseConn(to)
		}
	}
	if err := s.lot.Park(from, serve); err != nil {
		log.Fatal(err)
	}
}

var copyBuffers = sync.Pool{New: func() any { return new([4096]byte) }}

// copySome copies what one Read returns.
func copySome(to, from net.Conn) error {
	buf := copyBuffers.Get().(*[4096]byte)
	defer copyBuffers.Put(buf)
	n, err := from.Read(buf[:])
	if err == nil {
		_, err = to.Write(buf[:n])
	}
	return err
}
