package park

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// bufferedConn is a connection that reads ahead, as those of many protocols do.
type bufferedConn struct {
	net.Conn
	in *bufio.Reader
}

func buffered(conn net.Conn) net.Conn { return &bufferedConn{conn, bufio.NewReader(conn)} }

func (c *bufferedConn) Read(p []byte) (int, error) { return c.in.Read(p) }
func (c *bufferedConn) NetConn() net.Conn          { return c.Conn }

var copyBuffers = sync.Pool{New: func() any { return new([4096]byte) }}

// copier is the function of docs/park.md, for a connection whose bytes go to another, or back if to is nil. turns,
// if not nil, counts its calls.
func copier(lot *Lot, to net.Conn, turns *atomic.Int64) func(net.Conn) {
	var serve func(net.Conn)
	serve = func(conn net.Conn) {
		if turns != nil {
			turns.Add(1)
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
			lot.CloseConn(out) // which may be parked
		}
	}
	return serve
}

// The number of turns for a stream is bounded: a function that reads 4 KiB at a time is called for each 4 KiB, and
// besides for the remainder of each record or segment. It was called for each byte.
func TestTurnsOfStream(t *testing.T) {
	const total = 64 << 10
	for name, wrap := range map[string]func(net.Conn) net.Conn{"TCP": nil, "wrapper": buffered, "TLS": secured, "TLS in a wrapper": func(conn net.Conn) net.Conn {
		return buffered(secured(conn))
	}} {
		t.Run(name, func(t *testing.T) {
			l := newLot(t, Config{})
			server, client := pair(t, "tcp")
			// The whole of it is there before the first turn, so that turns do not depend on the network's pace.
			var turns atomic.Int64
			if wrap != nil {
				server = wrap(server)
			}
			if name == "TLS" || name == "TLS in a wrapper" {
				client = tls.Client(client, &tls.Config{InsecureSkipVerify: true})
			}
			ended := make(chan struct{})
			serve := copier(l, nil, &turns)
			must(t, l.Park(server, func(conn net.Conn) {
				defer close(ended)
				if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil { // and the handshake
					t.Error(err)
				}
				must(t, l.Park(conn, serve))
			}))
			send(t, client, "x")
			get(t, ended)
			exchangeBytes(t, client, total)
			// Package tls sends records of some 1,200 bytes to begin with.
			if n := turns.Load(); n > total/1000+total/4096 {
				t.Errorf("%d turns for %d bytes", n, total)
			}
			client.Close()
			until(t, "the function ends", func() bool { s := l.Stats(); return s.Parked+s.Running == 0 })
		})
	}
}

// secured is a server's TLS connection.
func secured(conn net.Conn) net.Conn {
	return tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{makeCertificate()}})
}

// A proxy whose connections are parked, with TLS on both sides, moves a stream in both directions at once.
func TestProxyOfStreams(t *testing.T) {
	const total = 20 << 20
	l := newLot(t, Config{})
	front, client := pair(t, "tcp")
	back, backend := pair(t, "tcp")
	insecure := &tls.Config{InsecureSkipVerify: true}
	var turns atomic.Int64
	in, out := secured(front), tls.Client(back, insecure)
	must(t, l.Park(in, copier(l, out, &turns)))
	must(t, l.Park(out, copier(l, in, &turns)))

	var echoing sync.WaitGroup
	echoing.Go(func() {
		conn := secured(backend)
		io.Copy(conn, conn)
		conn.Close()
	})
	conn := tls.Client(client, insecure)
	exchangeBytes(t, conn, total)
	if n := turns.Load(); n > 2*total/1000 {
		t.Errorf("%d turns for %d bytes in each direction", n, total)
	}
	conn.Close()
	echoing.Wait()
	until(t, "both sides end", func() bool { s := l.Stats(); return s.Parked+s.Running == 0 })
}

// exchangeBytes sends bytes, and receives and checks as many, both at once.
func exchangeBytes(t testing.TB, conn net.Conn, total int) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(10 * soon))
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
	must(t, <-sent)
}

// fillBytes writes what a stream has from a place on.
func fillBytes(buf []byte, from int) {
	for i := range buf {
		at := from + i
		buf[i] = byte(at) ^ byte(at>>8) ^ byte(at>>16)
	}
}
