package caddy

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"
	"github.com/socknotify/socknotify/internal/test/idling"
)

// BenchmarkBusy sends messages through WebSockets that all are busy, and their echoes back. It reports
// the CPU time of Caddy for each message with its echo, and the 99th percentile of the time that they
// take. Each connection waits for its echo before it sends again.
func BenchmarkBusy(b *testing.B) {
	for _, secure := range []bool{false, true} {
		for _, conns := range []int{1, 100, 1000} {
			for _, size := range []int{100, 16 << 10} {
				for _, lines := range []string{noLine, oneLine, bothLines} {
					name := fmt.Sprintf("TLS=%t/conns=%d/size=%d/lines=%s", secure, conns, size, lines)
					b.Run(name, func(b *testing.B) { benchmarkBusy(b, secure, lines, conns, size) })
				}
			}
		}
	}
}

func benchmarkBusy(b *testing.B, secure bool, lines string, conns, size int) {
	caddy := idling.Start(b, "server", fmt.Sprintf("%s %t", lines, secure))
	address, echo := caddy.Say(""), echoUpgraded(b)
	var clients []net.Conn
	for range conns {
		conn, err := dialUpgraded(address, echo, secure)
		check.OK(b, err)
		defer conn.Close()
		clients = append(clients, conn)
	}
	cpu := func() int64 {
		n, err := strconv.ParseInt(caddy.Say("cpu"), 10, 64)
		check.OK(b, err)
		return n
	}
	times := make([][]time.Duration, conns)
	var left atomic.Int64
	left.Store(int64(b.N))
	before := cpu()
	b.ResetTimer()
	var all sync.WaitGroup
	for i, conn := range clients {
		all.Go(func() {
			message, answer := frame(size), make([]byte, size)
			for left.Add(-1) >= 0 {
				begin := time.Now()
				conn.Write(message)
				if _, err := io.ReadFull(conn, answer); err != nil {
					b.Error(err)
					return
				}
				times[i] = append(times[i], time.Since(begin))
			}
		})
	}
	all.Wait()
	b.StopTimer()
	sorted := slices.Concat(times...)
	slices.Sort(sorted)
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(sorted[len(sorted)*99/100].Microseconds()), "p99-us")
}

// frame returns a frame of WebSocket that has size bytes.
func frame(size int) []byte {
	f := make([]byte, size)
	if f[0] = 0x82; size-2 < 126 {
		f[1] = byte(size - 2)
	} else {
		f[1] = 126
		binary.BigEndian.PutUint16(f[2:], uint16(size-4))
	}
	return f
}

// echoUpgraded returns the address of a backend that upgrades connections and echoes what they send.
func echoUpgraded(b *testing.B) string {
	ln := conntest.Listen(b)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				if _, err := http.ReadRequest(in); err != nil {
					return
				}
				io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
				io.Copy(conn, in)
			}()
		}
	}()
	return ln.Addr().String()
}

// dialUpgraded returns a connection that is upgraded, through Caddy, by a backend.
func dialUpgraded(address, backend string, secure bool) (net.Conn, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	if secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: "127.0.0.1"})
	}
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+address+"\r\nX-Backend: "+backend+
		"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if err != nil {
		return nil, err
	}
	in := bufio.NewReader(conn)
	r, err := http.ReadResponse(in, nil)
	if err == nil && r.StatusCode != http.StatusSwitchingProtocols {
		err = fmt.Errorf("%s", r.Status)
	}
	return &peer{conn, in}, err
}
