package sock_test

import (
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/sock"
)

// until calls f until it no longer would block.
func until[T any](t *testing.T, f func() (T, error)) (T, error) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		v, err := f()
		if err != sock.ErrWouldBlock {
			return v, err
		}
		if time.Now().After(end) {
			t.Fatal("blocked for ever")
		}
	}
}

func tcpPair(t *testing.T) (client, server *sock.Socket) {
	t.Helper()
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{Backlog: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Accept(); err != sock.ErrWouldBlock {
		t.Fatalf("Accept = %v", err)
	}
	if client, err = sock.New(sock.TCP4); err != nil {
		t.Fatal(err)
	}
	if err := client.Connect(l.LocalAddr()); err != nil && err != sock.ErrWouldBlock {
		t.Fatal(err)
	}
	if server, err = until(t, l.Accept); err != nil {
		t.Fatal(err)
	}
	return client, server
}

func TestTCP(t *testing.T) {
	client, server := tcpPair(t)
	defer client.Close()
	defer server.Close()
	buf := make([]byte, 64)
	if _, err := server.Recv(buf); err != sock.ErrWouldBlock {
		t.Fatalf("Recv = %v", err)
	}
	if n, err := client.Send([]byte("hello")); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	n, err := until(t, func() (int, error) { return server.Recv(buf) })
	if err != nil || string(buf[:n]) != "hello" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	if err := client.Shutdown(sock.ShutWrite); err != nil {
		t.Fatal(err)
	}
	if _, err := until(t, func() (int, error) { return server.Recv(buf) }); err != io.EOF {
		t.Fatalf("after shutdown: %v", err)
	}
	for {
		if _, err := server.Send(make([]byte, 1<<20)); err != nil {
			if err != sock.ErrWouldBlock {
				t.Fatal(err)
			}
			break
		}
	}
}

func TestReset(t *testing.T) {
	client, server := tcpPair(t)
	defer server.Close()
	if err := client.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err == nil {
		t.Error("a second Close succeeded")
	}
	_, err := until(t, func() (int, error) { return server.Recv(make([]byte, 1)) })
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("%v", err)
	}
	if err := server.Err(); err != nil {
		t.Fatalf("the error was read by Recv, but Err = %v", err)
	}
}

func TestUDP(t *testing.T) {
	var ends [2]*sock.Socket
	for i := range ends {
		s, err := sock.New(sock.UDP4)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Bind(sock.Loopback); err != nil {
			t.Fatal(err)
		}
		ends[i] = s
	}
	for _, msg := range []string{"datagram", ""} {
		if err := ends[0].SendTo([]byte(msg), ends[1].LocalAddr()); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64)
		type received struct {
			n    int
			from string
		}
		r, err := until(t, func() (received, error) {
			n, from, err := ends[1].RecvFrom(buf)
			return received{n, from.String()}, err
		})
		if err != nil || string(buf[:r.n]) != msg || r.from != ends[0].LocalAddr().String() {
			t.Fatalf("%q from %s, %v", buf[:r.n], r.from, err)
		}
	}
}

func TestUnixPairAllocatesNothing(t *testing.T) {
	for _, datagram := range []bool{false, true} {
		a, b, err := sock.UnixPair(datagram)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		defer b.Close()
		msg, buf := []byte("x"), make([]byte, 8)
		allocs := testing.AllocsPerRun(100, func() {
			a.Send(msg)
			if n, err := b.Recv(buf); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			if _, err := b.Recv(buf); err != sock.ErrWouldBlock {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%v allocations", allocs)
		}
	}
}
