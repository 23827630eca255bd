package http2

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/test/idling"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/sse"
)

// BenchmarkFanout measures the CPU time of sending an event to 5,000 clients of package sse, for
// each client: on 500 connections of HTTP/2, and on as many connections of HTTP/1.1 as there are
// clients. The servers alternate in this process; the clients are others.
func BenchmarkFanout(b *testing.B) {
	for _, secure := range []bool{false, true} {
		b.Run(map[bool]string{false: "clear", true: "TLS"}[secure], func(b *testing.B) {
			idling.Conns = fanoutClients
			idling.Enough(b)
			sites := []*fanout{newFanout(b, "http/1.1", secure, 1), newFanout(b, "h2", secure, 10)}
			e := event(b, strings.Repeat("x", 100))
			for range 3 {
				for _, s := range sites {
					s.send(b, e)
				}
			}
			var spent [2]int64
			for b.Loop() {
				for i, s := range sites {
					before := idling.CPU()
					s.send(b, e)
					spent[i] += idling.CPU() - before
				}
			}
			per := float64(b.N) * fanoutClients
			b.ReportMetric(float64(spent[0])/per, "HTTP/1.1-cpu-ns/event")
			b.ReportMetric(float64(spent[1])/per, "cpu-ns/event")
			b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

const fanoutClients = 5000

// A fanout is a server of package sse whose clients are in another process.
type fanout struct {
	events  sse.Server
	clients *idling.Process
}

func newFanout(b *testing.B, protocol string, secure bool, streams int) *fanout {
	s := &fanout{events: sse.Server{Retry: retryNone, Heartbeat: -1}}
	server := &park.HTTPServer{Server: &http.Server{Handler: &s.events}, HTTP2: new(Server)}
	url, _ := start(b, server, server.Server, secure)
	scheme, address, _ := strings.Cut(url, "://")
	s.clients = idling.Start(b, "readers", address, scheme, protocol, strconv.Itoa(streams))
	b.Cleanup(func() { must(b, s.events.Close()) })
	if got := s.clients.Say(""); got != "ready" {
		b.Fatal(got)
	}
	until(b, "all are parked", func() bool { return s.events.Stats().Parked == fanoutClients })
	return s
}

// send sends an event to all clients, and waits until they have it.
func (s *fanout) send(b *testing.B, e *sse.Prepared) {
	if n := s.events.Broadcast(e); n != fanoutClients {
		b.Fatal("sent to ", n)
	}
	if got := s.clients.Say("wait"); got != "received" {
		b.Fatal(got)
	}
}

// playReaders opens the clients, and answers "wait" when each has got one more event.
func playReaders(args []string) {
	streams, err := strconv.Atoi(args[3])
	if err != nil {
		panic(err)
	}
	var events atomic.Int64
	received := make(chan bool, 1)
	for range fanoutClients / streams {
		conn, err := net.Dial("tcp", args[0])
		if err != nil {
			panic(err)
		}
		if args[1] == "https" {
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{args[2]}})
		}
		in := io.Reader(conn)
		if args[2] == "h2" {
			in = newDataReader(conn, streams)
		} else {
			io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			readHead(conn)
		}
		go func() {
			buf := make([]byte, 64<<10)
			for {
				n, err := in.Read(buf)
				if events.Add(int64(bytes.Count(buf[:n], []byte("data: ")))) == fanoutClients {
					events.Store(0)
					received <- true
				}
				if err != nil {
					return
				}
			}
		}()
	}
	fmt.Println("ready")
	for line := ""; ; {
		if _, err := fmt.Scanln(&line); err != nil {
			return
		}
		<-received
		fmt.Println("received")
	}
}

// readHead reads the head of an answer of HTTP/1.1.
func readHead(conn net.Conn) {
	var head []byte
	b := make([]byte, 1)
	for ; !bytes.HasSuffix(head, []byte("\r\n\r\n")); head = append(head, b...) {
		if _, err := conn.Read(b); err != nil {
			panic(err)
		}
	}
}

// newDataReader opens streams, and returns a reader of what their DATA frames have.
func newDataReader(conn net.Conn, streams int) io.Reader {
	var wide bytes.Buffer
	f := http2.NewFramer(&wide, nil)
	headers := []string{":method", "GET", ":scheme", "http", ":authority", "x", ":path", "/"}
	opened := func(h http2.FrameHeader) bool { return h.Type == http2.FrameData }
	if err := request(conn, headers, streams, true, opened); err != nil {
		panic(err)
	}
	f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	f.WriteWindowUpdate(0, 1<<30)
	if _, err := wide.WriteTo(conn); err != nil {
		panic(err)
	}
	r, w := io.Pipe()
	go func() {
		in := http2.NewFramer(nil, conn)
		for {
			frame, err := in.ReadFrame()
			if err != nil {
				w.CloseWithError(err)
				return
			}
			if d, ok := frame.(*http2.DataFrame); ok {
				w.Write(d.Data())
			}
		}
	}()
	return r
}
