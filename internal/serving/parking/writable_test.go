package parking

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
)

// With Options.Writable the function runs when the peer has read, and at once if the socket takes bytes.
func TestWritable(t *testing.T) {
	for _, wrapped := range []bool{false, true} {
		l := newLot(t, Config{})
		server, client := conntest.Pair(t, "tcp")
		conn := server
		if wrapped {
			conn = Wrap(struct{ net.Conn }{server})
		}
		ran := make(chan bool, 1)
		check.OK(t, l.ParkWith(conn, Options{Writable: true}, func(net.Conn) { ran <- true }))
		<-ran
		// The system may take more some time after it has taken nothing, so this repeats until the function runs because of its
		// timeout.
		chunk, sent := make([]byte, 64<<10), 0
		for end := time.Now().Add(conntest.Timeout); l.Counts().Expired == 0; {
			if time.Now().After(end) {
				t.Fatal("timed out waiting for a socket that takes no bytes")
			}
			var err error
			for err == nil {
				check.OK(t, conn.SetWriteDeadline(time.Now().Add(20*time.Millisecond)))
				var n int
				n, err = conn.Write(chunk)
				sent += n
			}
			check.Is(t, err, os.ErrDeadlineExceeded)
			check.OK(t, l.ParkWith(conn, Options{Writable: true, IdleTimeout: time.Millisecond}, func(net.Conn) { ran <- true }))
			<-ran
		}
		check.OK(t, l.ParkWith(conn, Options{Writable: true}, func(net.Conn) { ran <- true }))
		_, err := io.CopyN(io.Discard, client, int64(sent))
		check.OK(t, err)
		<-ran
		// Without the option, it does not run.
		check.OK(t, l.Park(conn, func(net.Conn) { ran <- true }))
		if !l.Unpark(conn) {
			t.Error("the function ran without a reason")
		}
		conn.Close()
	}
}

func TestWake(t *testing.T) {
	l := newLot(t, Config{})
	server, _ := conntest.Pair(t, "tcp")
	if l.Wake(server) || l.Wake(nil) {
		t.Error("woken before Park")
	}
	ran := make(chan error, 1)
	check.OK(t, l.Park(server, func(conn net.Conn) {
		if l.Wake(conn) {
			t.Error("woken in its function")
		}
		conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := conn.Read(make([]byte, 1))
		ran <- err
	}))
	if !l.Wake(server) {
		t.Error("not woken")
	}
	check.Is(t, <-ran, os.ErrDeadlineExceeded)
	check.OK(t, l.Park(server, func(net.Conn) { ran <- nil }))
	server.Close()
	if l.Wake(server) {
		t.Error("a closed connection was woken")
	}
	l.Shutdown(context.Background())
	<-ran
}

// Goroutines wake connections while streams of bytes pass, also while a worker waits for the next bytes of one: no byte is
// lost, and the function never runs twice at a time.
func TestWakeStream(t *testing.T) {
	for _, wrap := range []func(net.Conn) net.Conn{
		func(c net.Conn) net.Conn { return c },
		func(c net.Conn) net.Conn { return Wrap(struct{ net.Conn }{c}) },
	} {
		l := newLot(t, Config{})
		server, client := conntest.Pair(t, "tcp")
		conn := wrap(server)
		var running sync.Mutex
		var serve func(net.Conn)
		serve = func(c net.Conn) {
			if !running.TryLock() {
				t.Error("two calls at a time")
				return
			}
			var buf [64]byte
			c.SetReadDeadline(time.Now().Add(time.Millisecond))
			n, err := c.Read(buf[:])
			if n > 0 {
				_, err = c.Write(buf[:n])
			}
			running.Unlock()
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) || l.Park(c, serve) != nil {
				c.Close()
			}
		}
		check.OK(t, l.Park(conn, serve))
		stop := make(chan bool)
		var waking sync.WaitGroup
		for range 2 {
			waking.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						l.Wake(conn)
						await.Pause(100 * time.Microsecond)
					}
				}
			})
		}
		check.OK(t, client.SetDeadline(time.Now().Add(conntest.Timeout)))
		got := make([]byte, 40)
		for i := range 1000 {
			want := bytes.Repeat([]byte{byte(i)}, 1+i%len(got))
			_, err := client.Write(want)
			check.OK(t, err)
			_, err = io.ReadFull(client, got[:len(want)])
			check.OK(t, err)
			if !bytes.Equal(got[:len(want)], want) {
				t.Fatalf("%v, want %v", got[:len(want)], want)
			}
		}
		close(stop)
		waking.Wait()
		client.Close()
	}
}

// Wake ends the wait of a worker for the next bytes of a stream: a function that does not read can park again before there
// are any.
func TestWakeWhileLingering(t *testing.T) {
	l := newLot(t, Config{})
	server, client := conntest.Pair(t, "tcp")
	check.OK(t, client.SetDeadline(time.Now().Add(conntest.Timeout)))
	woken, parked := make(chan bool, 1), make(chan bool, 100)
	var serve func(net.Conn)
	serve = func(c net.Conn) {
		var b [1]byte
		select {
		case <-woken:
			if err := l.Park(c, serve); err != nil {
				t.Error(err)
			}
			parked <- true
			return
		default:
		}
		if _, err := c.Read(b[:]); err != nil {
			c.Close()
			return
		}
		c.Write(b[:])
		if l.Park(c, serve) != nil {
			c.Close()
		}
	}
	conn := Wrap(struct{ net.Conn }{server})
	check.OK(t, l.Park(conn, serve))
	for range 20 {
		for range 2 * steadyPace {
			_, err := client.Write([]byte("x"))
			check.OK(t, err)
			_, err = io.ReadFull(client, make([]byte, 1))
			check.OK(t, err)
		}
		woken <- true
		await.Until(t, "Wake", func() bool { return l.Wake(conn) }) // its function may be running
		await.Value(t, parked)
	}
	client.Close()
}
