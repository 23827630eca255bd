package park

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
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
				server, client := pair(t, network)
				f, outcomes := reader()
				for range 100 {
					must(t, l.Park(server, f))
					send(t, client, "hello")
					o := receive(t, outcomes)
					if o.text != "hello" || o.err != nil || o.conn != server {
						t.Fatalf("%+v", o)
					}
				}
				send(t, client, "before") // bytes that arrived before Park count too
				must(t, l.Park(server, f))
				if o := receive(t, outcomes); o.text != "before" {
					t.Fatalf("%+v", o)
				}
				waitFor(t, "nothing parked", func() bool { return l.Stats().Running == 0 })
				if s := l.Stats(); s.Parks != 101 || s.AtOnce != 0 || s.Parked != 0 {
					t.Fatalf("%+v", s)
				}
			})
		}
	})
}

func TestParkAgainInside(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		l := newLot(t, Config{Backend: backend})
		server, client := pair(t, "tcp")
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
		must(t, l.Park(server, echo))
		for range 1000 {
			send(t, client, "x")
			if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		client.Close()
		wantErr(t, receive(t, failed), io.EOF)
	})
}

func TestPeerResets(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		l := newLot(t, Config{Backend: backend})
		server, client := pair(t, "tcp")
		f, outcomes := reader()
		must(t, l.Park(server, f))
		client.(*net.TCPConn).SetLinger(0)
		client.Close()
		if o := receive(t, outcomes); o.err == nil || o.err == io.EOF && !wine.ForgetsReset.Here() {
			t.Fatalf("%+v", o)
		}
	})
}

func TestIdleTimeout(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		const idle = time.Minute
		clock := testclock.Install(t)
		l := newLot(t, Config{Backend: backend, IdleTimeout: idle})
		server, client := pair(t, "tcp")
		f, outcomes := reader()
		must(t, l.Park(server, f))
		if clock.Advance(idle - 1); l.Stats().Expired != 0 {
			t.Fatal("early")
		}
		clock.Advance(1 + 2*tick)
		wantErr(t, receive(t, outcomes).err, os.ErrDeadlineExceeded)
		// The next parking has its own timeout.
		must(t, l.ParkWith(server, Options{IdleTimeout: -1}, f))
		send(t, client, "late")
		if o := receive(t, outcomes); o.text != "late" || o.err != nil {
			t.Fatalf("%+v", o)
		}
		must(t, l.ParkWith(server, Options{IdleTimeout: time.Hour}, f))
		send(t, client, "in time")
		if o := receive(t, outcomes); o.text != "in time" || o.err != nil {
			t.Fatalf("%+v", o)
		}
		if s := l.Stats(); s.Expired != 1 {
			t.Fatalf("%+v", s)
		}
	})
}

func TestReadDeadlineIsCleared(t *testing.T) {
	l := newLot(t, Config{})
	server, client := pair(t, "tcp")
	f, outcomes := reader()
	server.SetReadDeadline(time.Unix(1, 0))
	must(t, l.Park(server, f))
	send(t, client, "x")
	if o := receive(t, outcomes); o.text != "x" {
		t.Fatalf("%+v", o)
	}
}

func TestUnpark(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		l := newLot(t, Config{Backend: backend})
		server, client := pair(t, "tcp")
		f, outcomes := reader()
		if l.Unpark(server) {
			t.Fatal("never parked")
		}
		must(t, l.ParkWith(server, Options{IdleTimeout: time.Hour}, f))
		if !l.Unpark(server) || l.Unpark(server) {
			t.Fatal("want true, then false")
		}
		send(t, client, "mine")
		buf := make([]byte, 4)
		if _, err := io.ReadFull(server, buf); err != nil || string(buf) != "mine" {
			t.Fatal(err, string(buf))
		}
		// If the function had run, its outcome would come before the next one.
		must(t, l.Park(server, f))
		send(t, client, "yours")
		if o := receive(t, outcomes); o.text != "yours" {
			t.Fatalf("%+v", o)
		}
		wantEmpty(t, outcomes)

		must(t, l.Park(server, f))
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
		server, client := pair(t, "tcp")
		f, outcomes := reader()
		from, to := one, two
		for range 10 {
			must(t, from.Park(server, f))
			wantErr(t, to.Park(server, f), socknotify.ErrOtherPort)
			send(t, client, "x")
			if o := receive(t, outcomes); o.text != "x" {
				t.Fatalf("%+v", o)
			}
			wantErr(t, to.Park(server, f), socknotify.ErrOtherPort)
			if from.Unpark(server) {
				t.Fatal("not parked")
			}
			from, to = to, from
		}
		wantEmpty(t, outcomes)
	})
}

func TestCloseConn(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		l := newLot(t, Config{Backend: backend})
		server, _ := pair(t, "tcp")
		f, outcomes := reader()
		must(t, l.Park(server, f))
		must(t, l.CloseConn(server))
		wantErr(t, receive(t, outcomes).err, net.ErrClosed)
		wantErr(t, l.Park(server, f), net.ErrClosed)
		wantErr(t, l.CloseConn(server), net.ErrClosed)
	})
}

// The function runs when the Close method of a parked connection is called.
func TestCloseWhileParked(t *testing.T) {
	t.Parallel() // it waits
	backendtest.Each(t, func(t *testing.T, backend string) {
		t.Parallel() // it waits for the sweeper
		l := newLot(t, Config{Backend: backend})
		server, _ := pair(t, "tcp")
		f, outcomes := reader()
		must(t, l.Park(server, f))
		server.Close()
		wantErr(t, receive(t, outcomes).err, net.ErrClosed)
		waitFor(t, "the table is empty", func() bool { return l.conns.used.Load() == 0 })
	})
}

// The same if another connection with the same descriptor number is parked before the sweeper runs.
func TestDescriptorReuse(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		l := newLot(t, Config{Backend: backend})
		l.sweep.stop()
		number := func(conn net.Conn) (n uintptr) {
			raw, err := conn.(*net.TCPConn).SyscallConn()
			must(t, err)
			must(t, raw.Control(func(fd uintptr) { n = fd }))
			return n
		}
		for range 20 {
			old, _ := pair(t, "tcp")
			f, outcomes := reader()
			must(t, l.Park(old, f))
			was := number(old)
			old.Close()
			server, client := pair(t, "tcp")
			if number(server) != was {
				server, client = client, server
			}
			if number(server) != was {
				continue
			}
			g, news := reader()
			must(t, l.Park(server, g))
			wantErr(t, receive(t, outcomes).err, net.ErrClosed)
			send(t, client, "new")
			if o := receive(t, news); o.text != "new" {
				t.Fatalf("%+v", o)
			}
			return
		}
		t.Fatal("no descriptor number was reused")
	})
}

func TestParkWithBufferedReader(t *testing.T) {
	l := newLot(t, Config{})
	server, client := pair(t, "tcp")
	r := bufio.NewReader(server)
	lines := make(chan string, 1)
	f := func(net.Conn) {
		line, _ := r.ReadString('\n')
		lines <- line
	}
	send(t, client, "one\ntwo\n")
	must(t, l.ParkWith(server, Options{Reader: r}, f))
	for _, want := range []string{"one\n", "two\n"} {
		if line := receive(t, lines); line != want {
			t.Fatalf("%q, want %q", line, want)
		}
		must(t, l.ParkWith(server, Options{Reader: r}, f))
	}
	send(t, client, "three\n")
	if line := receive(t, lines); line != "three\n" {
		t.Fatalf("%q", line)
	}
	if s := l.Stats(); s.AtOnce != 1 {
		t.Fatalf("%+v", s)
	}
}

func TestInvalidArguments(t *testing.T) {
	l := newLot(t, Config{})
	server, client := pair(t, "tcp")
	in, out := net.Pipe()
	defer in.Close()
	defer out.Close()
	f, outcomes := reader()
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
		t.Run(name, func(t *testing.T) { wantErr(t, l.Park(c.conn, c.f), c.want) })
	}
	must(t, l.Park(server, f))
	wantErr(t, l.Park(server, f), ErrParked)
	wantErr(t, l.Park(sameSocket{server.(*net.TCPConn)}, f), ErrParked)
	wantEmpty(t, outcomes)
	if !l.Unpark(server) {
		t.Fatal("not parked")
	}
	must(t, l.Park(sameSocket{server.(*net.TCPConn)}, f))
	send(t, client, "x")
	receive(t, outcomes)
	wantErr(t, l.CloseConn(nil), socknotify.ErrInvalid)
	var noContext context.Context
	wantErr(t, l.Shutdown(noContext), socknotify.ErrInvalid) // the lot is still open
	must(t, l.Park(server, f))
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
