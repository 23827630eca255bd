package parking

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
)

var copyBuffers = sync.Pool{New: func() any { return new([4096]byte) }}

// copier returns the function of docs/park.md. It copies bytes to the connection to, or back if to is nil. calls,
// if not nil, counts its calls.
func copier(lot *Lot, to net.Conn, calls *atomic.Int64) func(net.Conn) {
	var serve func(net.Conn)
	serve = func(conn net.Conn) {
		if calls != nil {
			calls.Add(1)
		}
		out := to
		if out == nil {
			out = conn
		}
		buf := copyBuffers.Get().(*[4096]byte)
		defer copyBuffers.Put(buf)
		n, err := conn.Read(buf[:])
		if err == nil {
			_, err = out.Write(buf[:n])
		}
		if err == nil {
			err = lot.Park(conn, serve)
		}
		if err != nil {
			conn.Close()
			lot.CloseConn(out) // out may be parked
		}
	}
	return serve
}

// The number of calls for a steady connection is bounded. A function that reads 4 KiB at a time is called once for each 4 KiB, and
// once for the rest of each record or segment.
func TestSteadyCallCount(t *testing.T) {
	const total = 64 << 10
	for name, wrap := range map[string]func(net.Conn) net.Conn{"TCP": nil, "wrapper": conntest.Buffered, "TLS": secured, "TLS in a wrapper": func(conn net.Conn) net.Conn {
		return conntest.Buffered(secured(conn))
	}} {
		t.Run(name, func(t *testing.T) {
			l := newLot(t, Config{})
			server, client := conntest.Pair(t, "tcp")
			// All bytes have arrived before the first call, so that the number of calls does not depend
			// on timing.
			var calls atomic.Int64
			if wrap != nil {
				server = wrap(server)
			}
			if name == "TLS" || name == "TLS in a wrapper" {
				client = tls.Client(client, &tls.Config{InsecureSkipVerify: true})
			}
			ended := make(chan struct{})
			serve := copier(l, nil, &calls)
			check.OK(t, l.Park(server, func(conn net.Conn) {
				defer close(ended)
				if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil { // completes the handshake
					t.Error(err)
				}
				check.OK(t, l.Park(conn, serve))
			}))
			conntest.Send(t, client, "x")
			await.Value(t, ended)
			exchangeBytes(t, client, total)
			// The first records of package tls have about 1,200 bytes.
			if n := calls.Load(); n > total/1000+total/4096 {
				t.Errorf("%d calls for %d bytes", n, total)
			}
			client.Close()
			await.Until(t, "the function returns", func() bool { s := l.Counts(); return s.Parked+s.Running == 0 })
		})
	}
}

// secured returns the server's end of a TLS connection.
func secured(conn net.Conn) net.Conn {
	return tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{conntest.MakeCertificate()}})
}

// A proxy with parked connections and TLS on both sides copies in both directions concurrently.
func TestProxyOfSteadyConns(t *testing.T) {
	const total = 20 << 20
	l := newLot(t, Config{})
	front, client := conntest.Pair(t, "tcp")
	back, backend := conntest.Pair(t, "tcp")
	insecure := &tls.Config{InsecureSkipVerify: true}
	var calls atomic.Int64
	in, out := secured(front), tls.Client(back, insecure)
	check.OK(t, l.Park(in, copier(l, out, &calls)))
	check.OK(t, l.Park(out, copier(l, in, &calls)))

	var echoing sync.WaitGroup
	echoing.Go(func() {
		conn := secured(backend)
		io.Copy(conn, conn)
		conn.Close()
	})
	conn := tls.Client(client, insecure)
	exchangeBytes(t, conn, total)
	if n := calls.Load(); n > 2*total/1000 {
		t.Errorf("%d calls for %d bytes in each direction", n, total)
	}
	conn.Close()
	echoing.Wait()
	await.Until(t, "the functions of both sides return", func() bool { s := l.Counts(); return s.Parked+s.Running == 0 })
}

// exchangeBytes sends total bytes, and concurrently receives and verifies as many.
func exchangeBytes(t testing.TB, conn net.Conn, total int) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(10 * conntest.Timeout))
	sent := make(chan error, 1)
	go func() {
		buf := make([]byte, 32<<10)
		for from := 0; from < total; from += len(buf) {
			fillBytes(buf, from)
			if _, err := conn.Write(buf[:min(len(buf), total-from)]); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	got, want := make([]byte, 32<<10), make([]byte, 32<<10)
	for from := 0; from < total; {
		n, err := conn.Read(got[:min(len(got), total-from)])
		if err != nil {
			t.Fatalf("%v after %d bytes", err, from)
		}
		fillBytes(want[:n], from)
		if string(got[:n]) != string(want[:n]) {
			t.Fatalf("wrong bytes between %d and %d", from, from+n)
		}
		from += n
	}
	check.OK(t, <-sent)
}

// fillBytes fills buf with the bytes that the stream has at offset from.
func fillBytes(buf []byte, from int) {
	for i := range buf {
		at := from + i
		buf[i] = byte(at) ^ byte(at>>8) ^ byte(at>>16)
	}
}
