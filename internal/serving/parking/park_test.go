package parking

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/testclock"
	"github.com/socknotify/socknotify/internal/test/wine"
)

func TestPark(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, network := range []string{"tcp", "unix"} {
			t.Run(network, func(t *testing.T) {
				if network == "unix" && wine.HasNoUnix.Here() {
					t.Skip(wine.HasNoUnix)
				}
				l := newLot(t, Config{Backend: backend})
				server, client := conntest.Pair(t, network)
				f, outcomes := conntest.Reader()
				for range 100 {
					check.OK(t, l.Park(server, f))
					conntest.Send(t, client, "hello")
					o := await.Value(t, outcomes)
					if o.Text != "hello" || o.Err != nil || o.Conn != server {
						t.Fatalf("%+v", o)
					}
				}
				conntest.Send(t, client, "before") // bytes that arrived before Park count too
				check.OK(t, l.Park(server, f))
				if o := await.Value(t, outcomes); o.Text != "before" {
					t.Fatalf("%+v", o)
				}
				await.Until(t, "nothing parked", func() bool { return l.Counts().Running == 0 })
				if s := l.Counts(); s.Parks != 101 || s.AtOnce != 0 || s.Parked != 0 {
					t.Fatalf("%+v", s)
				}
			})
		}
	})
}

func TestParkAgainInside(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		l := newLot(t, Config{Backend: backend})
		server, client := conntest.Pair(t, "tcp")
		var echo func(net.Conn)
		failed := make(chan error, 1)
		echo = func(conn net.Conn) {
			buf := make([]byte, 8)
			n, err := conn.Read(buf)
			if err == nil {
				_, err = conn.Write(buf[:n])
			}
			if err == nil {
				err = l.Park(conn, echo)
			}
			if err != nil {
				failed <- err
			}
		}
		check.OK(t, l.Park(server, echo))
		for range 1000 {
			conntest.Send(t, client, "x")
			if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		client.Close()
		check.Is(t, await.Value(t, failed), io.EOF)
	})
}

func TestPeerResets(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		l := newLot(t, Config{Backend: backend})
		server, client := conntest.Pair(t, "tcp")
		f, outcomes := conntest.Reader()
		check.OK(t, l.Park(server, f))
		client.(*net.TCPConn).SetLinger(0)
		client.Close()
		if o := await.Value(t, outcomes); o.Err == nil || o.Err == io.EOF && !wine.ForgetsReset.Here() {
			t.Fatalf("%+v", o)
		}
	})
}

func TestIdleTimeout(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		const idle = time.Minute
		clock := testclock.Install(t)
		l := newLot(t, Config{Backend: backend, IdleTimeout: idle})
		server, client := conntest.Pair(t, "tcp")
		f, outcomes := conntest.Reader()
		check.OK(t, l.Park(server, f))
		if clock.Advance(idle - 1); l.Counts().Expired != 0 {
			t.Fatal("early")
		}
		clock.Advance(1 + 2*Tick)
		check.Is(t, await.Value(t, outcomes).Err, os.ErrDeadlineExceeded)
		// The next parking has its own timeout.
		check.OK(t, l.ParkWith(server, Options{IdleTimeout: -1}, f))
		conntest.Send(t, client, "late")
		if o := await.Value(t, outcomes); o.Text != "late" || o.Err != nil {
			t.Fatalf("%+v", o)
		}
		check.OK(t, l.ParkWith(server, Options{IdleTimeout: time.Hour}, f))
		conntest.Send(t, client, "in time")
		if o := await.Value(t, outcomes); o.Text != "in time" || o.Err != nil {
			t.Fatalf("%+v", o)
		}
		if s := l.Counts(); s.Expired != 1 {
			t.Fatalf("%+v", s)
		}
	})
}

func TestReadDeadlineIsCleared(t *testing.T) {
	l := newLot(t, Config{})
	server, client := conntest.Pair(t, "tcp")
	f, outcomes := conntest.Reader()
	server.SetReadDeadline(time.Unix(1, 0))
	check.OK(t, l.Park(server, f))
	conntest.Send(t, client, "x")
	if o := await.Value(t, outcomes); o.Text != "x" {
		t.Fatalf("%+v", o)
	}
}

func TestUnpark(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		l := newLot(t, Config{Backend: backend})
		server, client := conntest.Pair(t, "tcp")
		f, outcomes := conntest.Reader()
		if l.Unpark(server) {
			t.Fatal("never parked")
		}
		check.OK(t, l.ParkWith(server, Options{IdleTimeout: time.Hour}, f))
		if !l.Unpark(server) || l.Unpark(server) {
			t.Fatal("want true, then false")
		}
		conntest.Send(t, client, "mine")
		buf := make([]byte, 4)
		if _, err := io.ReadFull(server, buf); err != nil || string(buf) != "mine" {
			t.Fatal(err, string(buf))
		}
		// If the function had run, its outcome would come before the next one.
		check.OK(t, l.Park(server, f))
		conntest.Send(t, client, "yours")
		if o := await.Value(t, outcomes); o.Text != "yours" {
			t.Fatalf("%+v", o)
		}
		check.Empty(t, outcomes)

		check.OK(t, l.Park(server, f))
		server.Close()
		if !l.Unpark(server) {
			t.Fatal("Unpark of a closed connection succeeded")
		}
	})
}

// A connection may be parked in another lot after Unpark.
func TestTwoLots(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		one, two := newLot(t, Config{Backend: backend}), newLot(t, Config{Backend: backend})
		server, client := conntest.Pair(t, "tcp")
		f, outcomes := conntest.Reader()
		from, to := one, two
		for range 10 {
			check.OK(t, from.Park(server, f))
			check.Is(t, to.Park(server, f), socknotify.ErrOtherPort)
			conntest.Send(t, client, "x")
			if o := await.Value(t, outcomes); o.Text != "x" {
				t.Fatalf("%+v", o)
			}
			check.Is(t, to.Park(server, f), socknotify.ErrOtherPort)
			if from.Unpark(server) {
				t.Fatal("not parked")
			}
			from, to = to, from
		}
		check.Empty(t, outcomes)
	})
}

func TestCloseConn(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		l := newLot(t, Config{Backend: backend})
		server, _ := conntest.Pair(t, "tcp")
		f, outcomes := conntest.Reader()
		check.OK(t, l.Park(server, f))
		check.OK(t, l.CloseConn(server))
		check.Is(t, await.Value(t, outcomes).Err, net.ErrClosed)
		check.Is(t, l.Park(server, f), net.ErrClosed)
		check.Is(t, l.CloseConn(server), net.ErrClosed)
	})
}

// The function runs when the Close method of a parked connection is called.
func TestCloseWhileParked(t *testing.T) {
	t.Parallel() // it waits
	backendtest.Each(t, func(t *testing.T, backend string) {
		t.Parallel() // it waits for the sweeper
		l := newLot(t, Config{Backend: backend})
		server, _ := conntest.Pair(t, "tcp")
		f, outcomes := conntest.Reader()
		check.OK(t, l.Park(server, f))
		server.Close()
		check.Is(t, await.Value(t, outcomes).Err, net.ErrClosed)
		await.Until(t, "the table is empty", func() bool { return l.conns.used.Load() == 0 })
	})
}

// Neither the lot nor its port keeps a connection that is closed, after the sweeper has found it.
func TestClosedConnectionIsFree(t *testing.T) {
	l := newLot(t, Config{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	defer ln.Close()
	conn, err := net.Dial("tcp", ln.Addr().String()) // conntest.Pair would keep it
	check.OK(t, err)
	ran, free := make(chan bool, 1), make(chan bool, 1)
	check.OK(t, l.Park(conn, func(net.Conn) { ran <- true }))
	runtime.AddCleanup(conn.(*net.TCPConn), func(int) { free <- true }, 0)
	conn.Close()
	conn = nil
	l.conns.some(0, 1, l.sweepConn)
	await.Receive(t, "the function has run", ran)
	await.Until(t, "the connection is free", func() bool {
		runtime.GC()
		return len(free) > 0
	})
}

// The same if another connection with the same descriptor number is parked before the sweeper runs.
func TestDescriptorReuse(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		l := newLot(t, Config{Backend: backend})
		l.sweep.stop()
		number := func(conn net.Conn) (n uintptr) {
			raw, err := conn.(*net.TCPConn).SyscallConn()
			check.OK(t, err)
			check.OK(t, raw.Control(func(fd uintptr) { n = fd }))
			return n
		}
		for range 20 {
			old, _ := conntest.Pair(t, "tcp")
			f, outcomes := conntest.Reader()
			check.OK(t, l.Park(old, f))
			was := number(old)
			old.Close()
			server, client := conntest.Pair(t, "tcp")
			if number(server) != was {
				server, client = client, server
			}
			if number(server) != was {
				continue
			}
			g, news := conntest.Reader()
			check.OK(t, l.Park(server, g))
			check.Is(t, await.Value(t, outcomes).Err, net.ErrClosed)
			conntest.Send(t, client, "new")
			if o := await.Value(t, news); o.Text != "new" {
				t.Fatalf("%+v", o)
			}
			return
		}
		t.Fatal("no descriptor number was reused")
	})
}

func TestParkWithBufferedReader(t *testing.T) {
	l := newLot(t, Config{})
	server, client := conntest.Pair(t, "tcp")
	r := bufio.NewReader(server)
	lines := make(chan string, 1)
	f := func(net.Conn) {
		line, _ := r.ReadString('\n')
		lines <- line
	}
	conntest.Send(t, client, "one\ntwo\n")
	check.OK(t, l.ParkWith(server, Options{Reader: r}, f))
	for _, want := range []string{"one\n", "two\n"} {
		if line := await.Value(t, lines); line != want {
			t.Fatalf("%q, want %q", line, want)
		}
		check.OK(t, l.ParkWith(server, Options{Reader: r}, f))
	}
	conntest.Send(t, client, "three\n")
	if line := await.Value(t, lines); line != "three\n" {
		t.Fatalf("%q", line)
	}
	if s := l.Counts(); s.AtOnce != 1 {
		t.Fatalf("%+v", s)
	}
}

func TestInvalidArguments(t *testing.T) {
	l := newLot(t, Config{})
	server, client := conntest.Pair(t, "tcp")
	in, out := net.Pipe()
	defer in.Close()
	defer out.Close()
	f, outcomes := conntest.Reader()
	for name, c := range map[string]struct {
		conn net.Conn
		f    func(net.Conn)
		want error
	}{
		"nil":         {nil, f, socknotify.ErrInvalid},
		"nil TCP":     {(*net.TCPConn)(nil), f, socknotify.ErrInvalid},
		"a pipe":      {in, f, socknotify.ErrInvalid},
		"no function": {server, nil, socknotify.ErrInvalid},
		"a value":     {uncomparable{server.(*net.TCPConn), nil}, f, socknotify.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) { check.Is(t, l.Park(c.conn, c.f), c.want) })
	}
	check.OK(t, l.Park(server, f))
	check.Is(t, l.Park(server, f), ErrParked)
	check.Is(t, l.Park(sameSocket{server.(*net.TCPConn)}, f), ErrParked)
	check.Empty(t, outcomes)
	if !l.Unpark(server) {
		t.Fatal("not parked")
	}
	check.OK(t, l.Park(sameSocket{server.(*net.TCPConn)}, f))
	conntest.Send(t, client, "x")
	await.Value(t, outcomes)
	check.Is(t, l.CloseConn(nil), socknotify.ErrInvalid)
	var noContext context.Context
	check.Is(t, l.Shutdown(noContext), socknotify.ErrInvalid) // the lot is still open
	check.OK(t, l.Park(server, f))
	_, err := New(Config{Backend: "none such"})
	if err == nil {
		t.Fatal("no error")
	}
}

type uncomparable struct {
	*net.TCPConn
	_ []int
}

type sameSocket struct{ *net.TCPConn }
