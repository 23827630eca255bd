package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

type packetFunc func(c *server.PacketConn, in []sock.Message)

func (f packetFunc) Datagrams(c *server.PacketConn, in []sock.Message) { f(c, in) }

// echoPackets sends datagrams back.
var echoPackets = packetFunc(func(c *server.PacketConn, in []sock.Message) { c.Send(in) })

func listenPacket(t *testing.T) net.PacketConn {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return pc
}

func dialPacket(t *testing.T, to net.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial("udp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(soon))
	return c
}

func shutdownPackets(t *testing.T, s *server.PacketServer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// packets serves until the test ends, and returns a client's socket.
func packets(t *testing.T, s *server.PacketServer) net.Conn {
	t.Helper()
	pc := listenPacket(t)
	done := make(chan error, 1)
	go func() { done <- s.Serve(pc) }()
	t.Cleanup(func() {
		shutdownPackets(t, s)
		if err := <-done; err != server.ErrServerClosed {
			t.Errorf("Serve = %v", err)
		}
		if err := s.ListenAndServe("udp", "127.0.0.1:0"); err != server.ErrServerClosed {
			t.Errorf("ListenAndServe = %v", err)
		}
		if n := s.Stats().Conns; n != 0 {
			t.Errorf("%d sockets are left", n)
		}
	})
	return dialPacket(t, pc.LocalAddr())
}

func TestDatagrams(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		s := &server.PacketServer{Backend: backend, Workers: 2, Handler: echoPackets}
		c := packets(t, s)
		buf := make([]byte, 70000)
		for round := range 100 {
			const burst = 20
			for i := range burst { // each as large as it likes
				if _, err := c.Write(bytes.Repeat([]byte{byte(i)}, i*37)); err != nil {
					t.Fatal(err)
				}
			}
			for i := range burst {
				n, err := c.Read(buf)
				if err != nil || !bytes.Equal(buf[:n], bytes.Repeat([]byte{byte(i)}, i*37)) {
					t.Fatalf("round %d, datagram %d: %d bytes, %v", round, i, n, err)
				}
			}
		}
		wait(t, func() bool { return s.Stats().Sent == 2000 })
		if st := s.Stats(); st.Received != 2000 || st.Dropped+st.Panics != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// Datagrams that arrive while a handler runs, more than a worker receives at a time, all reach it, although none comes later.
func TestDatagramsDuringHandler(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		entered, leave := make(chan bool), make(chan bool)
		got := make(chan string, 1000)
		first := true
		s := &server.PacketServer{Backend: backend, Workers: 2, StuckAfter: -1, Handler: packetFunc(func(_ *server.PacketConn, in []sock.Message) {
			if first {
				first = false
				entered <- true
				<-leave
			}
			for _, m := range in {
				got <- string(m.Buf)
			}
		})}
		c := packets(t, s)
		const n = 150
		for i := range n {
			if _, err := fmt.Fprint(c, i); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				<-entered
			}
		}
		close(leave)
		for i := range n {
			if text := await.Receive(t, "a datagram", got); text != fmt.Sprint(i) {
				t.Fatalf("got %q, want %d", text, i)
			}
		}
	})
}

// A handler that panics, calls Goexit or changes its messages affects no other datagrams.
func TestDatagramHandlerFails(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		s := &server.PacketServer{Backend: backend, MaxMessage: 8, Handler: packetFunc(func(c *server.PacketConn, in []sock.Message) {
			switch text := string(in[0].Buf); text {
			case "panic":
				panic(text)
			case "exit":
				runtime.Goexit()
			default:
				in[0].Buf = []byte("got " + text)
				c.Send(append(in, sock.Message{Buf: make([]byte, 100_000), Addr: in[0].Addr})) // the last one is too long
				in[0].Buf = nil
			}
		})}
		c := packets(t, s)
		buf := make([]byte, 100)
		for i, text := range []string{"panic", "exit", "long datagram"} {
			if _, err := c.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprint("got ok", i)
			wait(t, func() bool { // it was dequeued, or the following would be of its batch
				return s.Stats().Received == uint64(2*i+1)
			})
			if i == 2 {
				n, err := c.Read(buf)
				if err != nil || string(buf[:n]) != "got long dat" {
					t.Fatalf("%q, %v", buf[:n], err)
				}
			}
			c.Write([]byte(fmt.Sprint("ok", i)))
			n, err := c.Read(buf)
			if err != nil || string(buf[:n]) != want {
				t.Fatalf("%q, %v; want %q", buf[:n], err, want)
			}
		}
		wait(t, func() bool { st := s.Stats(); return st.Panics == 1 && st.Sent == 4 && st.Dropped == 4 })
	})
}

func TestPacketServerErrors(t *testing.T) {
	for _, c := range []struct {
		s    *server.PacketServer
		is   error
		says string
	}{
		{&server.PacketServer{}, socknotify.ErrInvalid, "Handler"},
		{&server.PacketServer{Handler: packetFunc(nil), Workers: -1}, socknotify.ErrInvalid, "Workers must not be negative, got -1"},
		{&server.PacketServer{Handler: packetFunc(nil), MaxMessage: 1 << 20}, socknotify.ErrInvalid, "MaxMessage must be at most 65535, got 1048576"},
		{&server.PacketServer{Handler: packetFunc(nil), Backend: "abacus"}, errors.ErrUnsupported, "abacus"},
	} {
		s := c.s
		if err := s.ListenAndServe("udp", "127.0.0.1:0"); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v; want %v, and %q", err, c.is, c.says)
		}
		if err := s.ServeSocket(nil); err == nil {
			t.Error("a nil socket is no error")
		}
		s.Close()
	}
}

// Closing a socket outside the server ends its Serve, and nothing else.
func TestPacketSocketClosed(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		s := &server.PacketServer{Backend: backend, Handler: echoPackets}
		good := packets(t, s)
		l, err := sock.ListenUDP(sock.Loopback, sock.ListenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		addr := l.LocalAddr().String()
		ended := make(chan error, 1)
		go func() { ended <- s.ServeSocket(l) }()
		wait(t, func() bool { return s.Stats().Conns == 2 })
		l.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), addr) {
			t.Errorf("ServeSocket = %v", err)
		}
		echoes(t, good, "hello")
	})
}

// If more handlers than there are workers do not return, the other sockets are served, and Stats reports the handlers. The
// sockets of these are served again when they have returned.
func TestPacketHandlerStuck(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		var log logged
		release := make(chan struct{})
		started := 0
		s := &server.PacketServer{Backend: backend, Workers: 2, StuckAfter: 200 * time.Millisecond,
			Logger:  log.logger(),
			OnStart: func(*socknotify.Port[*server.PacketConn]) { started++ },
			Handler: packetFunc(func(c *server.PacketConn, in []sock.Message) {
				for i := range in {
					switch string(in[i].Buf) {
					case "stuck":
						<-release
					case "cut":
						<-release
						runtime.Goexit()
					}
				}
				c.Send(in)
			})}
		var all []net.Conn
		for range 5 {
			all = append(all, packets(t, s))
		}
		stuck, good := all[:4], all[4]
		for i, c := range stuck {
			send(t, c, []string{"stuck", "stuck", "stuck", "cut"}[i])
		}
		wait(t, func() bool { return s.Stats().Received == 4 })
		for range 20 {
			echoes(t, good, "hello")
		}
		// On a busy machine others are late, too, and count as well.
		wait(t, func() bool { st := s.Stats(); return st.Stuck >= 4 && st.Longest >= s.StuckAfter && st.Workers >= 5 })
		wait(t, func() bool { return log.count("does not return") >= 4 })
		close(release)
		for _, c := range stuck[:3] {
			expect(t, c, "stuck")
		}
		for _, c := range all {
			echoes(t, c, "hello")
		}
		wait(t, func() bool { st := s.Stats(); return st.Workers == 2 && st.Longest < s.StuckAfter })
		if st := s.Stats(); st.Stuck < 4 || st.Panics != 0 || started != 1 {
			t.Errorf("%+v, started %d times", st, started)
		}
	})
}

// A socket that cannot be served is closed.
func TestPacketServeFails(t *testing.T) {
	pc := listenPacket(t)
	defer pc.Close()
	s := &server.PacketServer{Handler: packetFunc(nil)}
	if err := s.Serve(struct{ net.PacketConn }{pc}); err == nil || errors.Is(err, server.ErrServerClosed) {
		t.Errorf("Serve = %v", err)
	}
	if err := s.Serve(nil); err == nil {
		t.Error("none at all is no error")
	}
	if err := pc.SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it is open: %v", err)
	}
}

// Streams and listeners are refused.
func TestPacketServerOfStreams(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		l := listenSocket(t)
		addr := l.LocalAddr()
		dial(t, addr.String())
		s := &server.PacketServer{Backend: backend, Handler: packetFunc(func(c *server.PacketConn, in []sock.Message) {
			t.Error("called")
		})}
		defer s.Close()
		if err := s.ServeSocket(l); !errors.Is(err, socknotify.ErrInvalid) || !strings.Contains(err.Error(), addr.String()) {
			t.Errorf("ServeSocket = %v", err)
		}
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("it is open: %v", err)
		}
	})
}
