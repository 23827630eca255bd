package server_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/long"
)

// Without free descriptors, open connections are still served, and waiting ones are accepted when there are free ones again.
func TestOutOfDescriptors(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		s := &srv{Handler: &handler{t: t}, Backend: backend}
		addr := start(t, s)
		good := dial(t, addr)
		echoes(t, good, "hello")
		to := net.TCPAddr{IP: good.RemoteAddr().(*net.TCPAddr).IP, Port: good.RemoteAddr().(*net.TCPAddr).Port}
		var waiting []int
		for range 20 { // their descriptors are there before
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			waiting = append(waiting, fd)
		}
		restore := exhaust(t)
		defer restore()
		for _, fd := range waiting {
			if err := unix.Connect(fd, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())}); err != nil {
				t.Fatal(err)
			}
			unix.Write(fd, []byte("hello"))
		}
		for range 100 {
			echoes(t, good, "hello")
		}
		if n := s.Stats().Accepted; n != 1 {
			t.Errorf("%d accepted without descriptors", n)
		}
		restore()
		for _, fd := range waiting {
			buf := make([]byte, 5)
			if n, err := unix.Read(fd, buf); n != 5 || err != nil {
				t.Fatalf("%d bytes, %v", n, err)
			}
		}
	})
}

// exhaust makes every further attempt to open a descriptor fail.
func exhaust(t *testing.T) (restore func()) {
	t.Helper()
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0) // the lowest that is free
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(fd), Max: was.Max}))
	return sync.OnceFunc(func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &was) })
}

// Peers that send a byte now and then, one that never reads, and a flood past the limit leave the good ones
// served, every request of theirs answered, and memory bounded.
func TestAbuse(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		slow := 5000
		if backend == "poll" || testing.Short() { // which looks at all of them for each request
			slow = 500
		}
		h := &handler{t: t, data: func(c conn, buf []byte) error { // answers lines of six bytes
			n, err := c.Read(buf)
			if err != nil {
				return err
			}
			b := append(c.Value.got, buf[:n]...)
			whole := len(b) - len(b)%6
			_, err = c.Write(b[:whole])
			c.Value.got = append([]byte(nil), b[whole:]...)
			return err
		}}
		s := &srv{Handler: h, Backend: backend, Workers: 2, MaxConns: slow + 20, MaxQueued: 1 << 16, IdleTimeout: time.Hour}
		addr := start(t, s)
		var loris []net.Conn
		for range slow {
			loris = append(loris, dial(t, addr))
		}
		h.conn(slow)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		background := func(f func()) {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						f()
					}
				}
			})
		}
		at := 0
		background(func() {
			loris[at%slow].Write([]byte("x"))
			at++
			await.Pause(100 * time.Microsecond)
		})
		never := dial(t, addr)
		b := make([]byte, 1<<16)
		background(func() {
			never.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
			never.Write(b)
		})
		var good []*net.TCPConn
		for range 10 {
			c := dial(t, addr)
			echoes(t, c, "hello\n")
			good = append(good, c)
		}
		background(func() {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				c.SetDeadline(time.Now().Add(20 * time.Millisecond)) // it may have been let in
				io.Copy(io.Discard, c)
				c.Close()
			}
			await.Pause(time.Millisecond)
		})
		crowd := append(loris[1:slow-1:slow-1], never)
		for range 30 { // what the limit leaves, and more
			crowd = append(crowd, dial(t, addr))
		}
		for range long.Or(300, 30) {
			for _, c := range good {
				send(t, c, "hello\n")
			}
			for _, c := range good {
				expect(t, c, "hello\n")
			}
		}
		wait(t, func() bool { return s.Stats().Refused >= 10 })
		close(stop)
		wg.Wait()
		if st := s.Stats(); st.QueuedBytes > 1<<16 || st.Conns > s.MaxConns || st.Panics+st.TimedOut.Idle+st.TimedOut.Slow != 0 {
			t.Errorf("%+v", st)
		}
		served := good
		for _, i := range []int{0, slow - 1} { // slow peers complete their line and are answered, too
			c := loris[i].(*net.TCPConn)
			sent := (at - i + slow - 1) / slow
			rest := 6 - sent%6
			send(t, c, strings.Repeat("x", rest))
			expect(t, c, strings.Repeat("x", sent+rest))
			served = append(served, c)
		}
		// Shutdown would wait for these until they close or its context ends.
		for _, c := range crowd {
			c.Close()
		}
		shutdown(t, s)
		for _, c := range served {
			expectEnd(t, c, io.EOF)
		}
	})
}

// If there is no descriptor for the net.Conn when the queued bytes have been sent, the hijacker's calls return the error.
func TestHijackWithoutDescriptors(t *testing.T) {
	hijackQueued(t, func(t *testing.T, q *queued) {
		nc, total := q.hijack(t)
		defer exhaust(t)()
		if _, err := io.CopyN(io.Discard, q.peer, int64(total)); err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, unix.EMFILE) {
			t.Errorf("Read = %v", err)
		}
		if err := q.h.cause(1); !errors.Is(err, unix.EMFILE) {
			t.Errorf("cause %v", err)
		}
	})
}
