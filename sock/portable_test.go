package sock_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	testawait "github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/errno"
	"github.com/socknotify/socknotify/internal/test/qemu"
	"github.com/socknotify/socknotify/internal/test/wine"
	"github.com/socknotify/socknotify/sock"
)

// The tests in this file run on every system and use package sock alone. They have no poller and repeat calls instead.

// must ends the test if there is an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// retry repeats f until it returns something else than ErrWouldBlock.
func retry(t *testing.T, f func() error) error {
	t.Helper()
	var err error
	testawait.Until(t, "a call does not return ErrWouldBlock", func() bool {
		err = f()
		return err != sock.ErrWouldBlock
	})
	return err
}

// mustMake closes s at the end of the test. It skips the test if the system does not support this kind of socket.
func mustMake(t *testing.T, s *sock.Socket, err error) *sock.Socket {
	t.Helper()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func mustNew(t *testing.T, n sock.Network) *sock.Socket {
	t.Helper()
	s, err := sock.New(n)
	return mustMake(t, s, err)
}

// onLoopback runs a test with each loopback address of the machine.
func onLoopback(t *testing.T, test func(t *testing.T, a netip.AddrPort)) {
	for _, a := range []netip.AddrPort{sock.Loopback, sock.Loopback6} {
		t.Run(a.Addr().String(), func(t *testing.T) {
			l, err := sock.ListenTCP(a, sock.ListenOptions{})
			if a == sock.Loopback6 && (errors.Is(err, errno.NoAddr) || errors.Is(err, errno.NoV6)) {
				t.Skip(err)
			}
			mustMake(t, l, err).Close()
			test(t, a)
		})
	}
}

func listenOn(t *testing.T, a netip.AddrPort) *sock.Socket {
	t.Helper()
	l, err := sock.ListenTCP(a, sock.ListenOptions{})
	return mustMake(t, l, err)
}

// connectPair connects a new socket to a listener and accepts the connection.
func connectPair(t *testing.T, l *sock.Socket) (client, server *sock.Socket) {
	t.Helper()
	a := l.LocalAddr()
	client = mustNew(t, sock.NetworkOf(a, sock.TCP4, sock.TCP6))
	if err := client.Connect(a); err != nil && err != sock.ErrWouldBlock {
		t.Fatal(err)
	}
	server = new(sock.Socket)
	must(t, retry(t, func() error { return l.AcceptInto(server) }))
	return client, mustMake(t, server, nil)
}

// sendAll sends all of data.
func sendAll(t *testing.T, s *sock.Socket, data string) {
	t.Helper()
	for data != "" {
		var n int
		if err := retry(t, func() (err error) { n, err = s.Send([]byte(data)); return err }); err != nil {
			t.Fatal(err)
		}
		data = data[n:]
	}
}

// recvAll receives size bytes.
func recvAll(t *testing.T, s *sock.Socket, size int) string {
	t.Helper()
	b := make([]byte, size)
	for got := 0; got < size; {
		var n int
		if err := retry(t, func() (err error) { n, err = s.Recv(b[got:]); return err }); err != nil {
			t.Fatalf("after %d of %d: %v", got, size, err)
		}
		got += n
	}
	return string(b)
}

// wantRecv verifies what is received.
func wantRecv(t *testing.T, s *sock.Socket, want string) {
	t.Helper()
	if got := recvAll(t, s, len(want)); got != want {
		t.Errorf("received %q, want %q", got, want)
	}
}

// wantEOF verifies that the stream has ended.
func wantEOF(t *testing.T, s *sock.Socket) {
	t.Helper()
	err := retry(t, func() error { _, err := s.Recv(make([]byte, 1)); return err })
	if err != io.EOF {
		t.Errorf("got %v, want io.EOF", err)
	}
}

func TestPortableStream(t *testing.T) {
	onLoopback(t, func(t *testing.T, a netip.AddrPort) {
		l := listenOn(t, a)
		if _, err := l.Accept(); err != sock.ErrWouldBlock {
			t.Errorf("Accept without a connection = %v", err)
		}
		c, s := connectPair(t, l)
		if c.LocalAddr() != s.RemoteAddr() || c.RemoteAddr() != s.LocalAddr() || s.LocalAddr() != l.LocalAddr() {
			t.Errorf("%v to %v, and %v to %v", c.LocalAddr(), c.RemoteAddr(), s.LocalAddr(), s.RemoteAddr())
		}
		for _, x := range []*sock.Socket{c, s} { // the accepted socket is non-blocking too
			if n, err := x.Recv(make([]byte, 1)); n != 0 || err != sock.ErrWouldBlock {
				t.Errorf("Recv without data = %d, %v", n, err)
			}
		}
		sendAll(t, c, "to the server")
		sendAll(t, s, "to the client")
		wantRecv(t, s, "to the server")
		if got := recvAll(t, c, 13); got != "to the client" {
			t.Errorf("the client got %q", got)
		}
		if err := c.Err(); err != nil {
			t.Errorf("Err = %v", err)
		}
		must(t, c.Shutdown(sock.ShutWrite))
		wantEOF(t, s)
		wantEOF(t, s)
		sendAll(t, s, "still open") // the other direction
		wantRecv(t, c, "still open")
		if n, err := c.Send([]byte("x")); n != 0 || err == nil || err == sock.ErrWouldBlock {
			t.Errorf("Send after ShutWrite = %d, %v", n, err)
		}
		s.Close()
		wantEOF(t, c)
	})
}

func TestPortableFull(t *testing.T) {
	c, s := connectPair(t, listenOn(t, sock.Loopback))
	const pattern = "0123456789abcdef"
	block := bytes.Repeat([]byte(pattern), 4<<10)
	sent := 0
	for {
		n, err := c.SendV([][]byte{block[sent%len(pattern):], nil, block})
		if err == sock.ErrWouldBlock {
			break
		}
		if err != nil || n <= 0 {
			t.Fatalf("SendV = %d, %v", n, err)
		}
		if sent += n; sent > 1<<30 {
			t.Fatal("timed out filling the socket")
		}
	}
	c.Shutdown(sock.ShutWrite)
	b := make([]byte, 1<<16)
	for got := 0; ; {
		var n int
		err := retry(t, func() (err error) { n, err = s.Recv(b); return err })
		if err == io.EOF {
			if got != sent {
				t.Errorf("%d of %d bytes", got, sent)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range b[:n] {
			if x != pattern[(got+i)%len(pattern)] {
				t.Fatalf("byte %d is %q", got+i, x)
			}
		}
		got += n
	}
}

func TestPortableRefused(t *testing.T) {
	onLoopback(t, func(t *testing.T, a netip.AddrPort) {
		reserved := mustNew(t, sock.NetworkOf(a, sock.TCP4, sock.TCP6))
		must(t, reserved.Bind(a))
		c := mustNew(t, sock.NetworkOf(a, sock.TCP4, sock.TCP6))
		at := reserved.LocalAddr()
		if runtime.GOOS == "netbsd" || runtime.GOOS == "dragonfly" {
			reserved.Close() // while it is bound, connecting might not be refused
		}
		err := c.Connect(at)
		if err == sock.ErrWouldBlock {
			err = retry(t, func() error {
				if err := c.Err(); err != nil {
					return err
				}
				return sock.ErrWouldBlock
			})
		}
		if !qemu.Is(err, errno.Refused) {
			t.Errorf("Connect to a closed port = %v", err)
		}
	})
}

func TestPortableReset(t *testing.T) {
	c, s := connectPair(t, listenOn(t, sock.Loopback))
	must(t, c.SetLinger(0))
	must(t, c.Close())
	err := retry(t, func() error { _, err := s.Recv(make([]byte, 1)); return err })
	// Wine reports a reset as the end of the stream.
	if err == nil || err == io.EOF && runtime.GOOS != "windows" {
		t.Errorf("Recv = %v", err)
	}
	err = retry(t, func() error {
		if _, err := s.Send([]byte("x")); err != nil {
			return err
		}
		return sock.ErrWouldBlock
	})
	if err == nil {
		t.Error("Send continues to succeed")
	}
}

func TestPortableDatagrams(t *testing.T) {
	onLoopback(t, func(t *testing.T, a netip.AddrPort) {
		x, y := mustNew(t, sock.NetworkOf(a, sock.UDP4, sock.UDP6)), mustNew(t, sock.NetworkOf(a, sock.UDP4, sock.UDP6))
		for _, s := range []*sock.Socket{x, y} {
			must(t, s.Bind(a))
		}
		b := make([]byte, 100)
		if _, _, err := y.RecvFrom(b); err != sock.ErrWouldBlock {
			t.Errorf("RecvFrom without a datagram = %v", err)
		}
		recv := func(want string, room int) {
			t.Helper()
			var n int
			var from netip.AddrPort
			err := retry(t, func() (err error) { n, from, err = y.RecvFrom(b[:room]); return err })
			if err != nil || string(b[:n]) != want || from != x.LocalAddr() {
				t.Errorf("%q from %v, %v; want %q from %v", b[:n], from, err, want, x.LocalAddr())
			}
		}
		send := func(data string) {
			t.Helper()
			must(t, retry(t, func() error { return x.SendTo([]byte(data), y.LocalAddr()) }))
		}
		for _, data := range []string{"one", "", "three"} {
			send(data)
		}
		recv("one", 100)
		recv("", 100)
		recv("three", 100)
		send("too long")
		recv("too", 3)

		// The port is closed. An unconnected socket does not receive an error.
		gone := mustNew(t, sock.NetworkOf(a, sock.UDP4, sock.UDP6))
		must(t, gone.Bind(a))
		to := gone.LocalAddr()
		gone.Close()
		if err := x.SendTo([]byte("x"), to); err != nil {
			t.Error(err)
		}
		send("after it")
		recv("after it", 100)
		if _, _, err := x.RecvFrom(b); err != sock.ErrWouldBlock {
			t.Errorf("RecvFrom = %v", err)
		}

		must(t, x.Connect(y.LocalAddr()))
		if n, err := x.SendV([][]byte{[]byte("in "), []byte("parts")}); n != 8 || err != nil {
			t.Errorf("SendV = %d, %v", n, err)
		}
		recv("in parts", 100)
		out := []sock.Message{{Buf: []byte("a")}, {Buf: []byte("bc")}, {Buf: nil}}
		if n, err := sendBatch(x, out); n != 3 || err != nil || out[0].N != 1 || out[1].N != 2 {
			t.Fatalf("SendBatch = %d, %v: %v", n, err, out)
		}
		msgs := make([]sock.Message, 8)
		for i := range msgs {
			msgs[i].Buf = make([]byte, 10)
		}
		for got := 0; got < 3; {
			var n int
			if err := retry(t, func() (err error) { n, err = y.RecvBatch(msgs[got:]); return err }); err != nil {
				t.Fatal(err)
			}
			got += n
		}
		for i, want := range []string{"a", "bc", ""} {
			if m := msgs[i]; string(m.Buf[:m.N]) != want || m.Addr != x.LocalAddr() {
				t.Errorf("message %d is %q from %v", i, m.Buf[:m.N], m.Addr)
			}
		}
	})
}

// A socket on a wildcard address learns which address each datagram of a batch came to, and answers
// from it: a connected client takes no answer from another.
func TestPortablePacketInfo(t *testing.T) {
	four, six, mapped := netip.IPv4Unspecified(), netip.IPv6Unspecified(), netip.MustParsePrefix("::ffff:0:0/96")
	for _, test := range []struct {
		on, asked netip.Addr
		dual      bool
	}{
		{four, sock.Loopback.Addr(), false}, {four, netip.MustParseAddr("127.0.0.2"), false},
		{six, sock.Loopback6.Addr(), false}, {six, sock.Loopback6.Addr(), true},
		{six, sock.Loopback.Addr(), true}, {six, netip.MustParseAddr("127.0.0.2"), true},
	} {
		t.Run(fmt.Sprint(test.asked, " of ", test.on), func(t *testing.T) {
			s := mustNew(t, sock.NetworkOf(netip.AddrPortFrom(test.on, 0), sock.UDP4, sock.UDP6))
			if test.on == six {
				must(t, s.SetDualStack(test.dual))
			}
			if err := s.Bind(netip.AddrPortFrom(test.on, 0)); err != nil {
				t.Skip(err)
			}
			if err := s.SetPacketInfo(true); errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			to := netip.AddrPortFrom(test.asked, s.LocalAddr().Port())
			var clients []*sock.Socket
			for range 3 {
				c := mustNew(t, sock.NetworkOf(to, sock.UDP4, sock.UDP6))
				if err := c.Connect(to); err != nil {
					t.Skip(err) // the machine has no such address
				}
				clients = append(clients, c)
				sendAll(t, c, "question")
			}
			msgs := make([]sock.Message, len(clients)+1)
			for i := range msgs {
				msgs[i].Buf = make([]byte, 100)
			}
			got := 0
			for got < len(clients) {
				must(t, retry(t, func() error {
					n, err := s.RecvBatch(msgs[got:])
					got += n
					return err
				}))
			}
			for i := range msgs[:got] {
				m := &msgs[i]
				if m.Local.Unmap() != test.asked || mapped.Contains(m.Local) != m.Addr.Addr().Is4In6() {
					t.Fatalf("message %d came to %v, from %v; want %v", i, m.Local, m.Addr, test.asked)
				}
				m.Buf = m.Buf[:m.N]
			}
			if test.asked == netip.MustParseAddr("127.0.0.2") && wine.IgnoresInfo.Here() {
				t.Skip(wine.IgnoresInfo)
			}
			if n, err := sendBatch(s, msgs[:got]); n != got || err != nil {
				t.Fatalf("SendBatch = %d, %v", n, err)
			}
			for _, c := range clients {
				wantRecv(t, c, "question")
			}
			must(t, s.SetPacketInfo(false))
			sendAll(t, clients[0], "again")
			must(t, retry(t, func() error { _, err := s.RecvBatch(msgs[:1]); return err }))
			if msgs[0].Local.IsValid() {
				t.Errorf("without SetPacketInfo a message came to %v", msgs[0].Local)
			}
		})
	}
	l := listenOn(t, sock.Loopback)
	l.Close()
	if err := l.SetPacketInfo(true); !errors.Is(err, net.ErrClosed) {
		t.Errorf("of a closed socket: %v", err)
	}
}

func TestPortableSendFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	data := strings.Repeat("0123456789", 20_000)
	must(t, os.WriteFile(path, []byte(data), 0o600))
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, s := connectPair(t, listenOn(t, sock.Loopback))
	const from = 5
	for at := from; at < len(data); {
		var n int
		if err := retry(t, func() (err error) { n, err = c.SendFile(f, int64(at), 1<<30); return err }); err != nil || n <= 0 {
			t.Fatalf("SendFile = %d, %v", n, err)
		}
		if got := recvAll(t, s, n); got != data[at:at+n] {
			t.Fatalf("received wrong bytes at %d", at)
		}
		at += n
	}
	if n, err := c.SendFile(f, int64(len(data)), 1); n != 0 || err != io.EOF {
		t.Errorf("SendFile at the end = %d, %v", n, err)
	}
	if at, err := f.Seek(0, io.SeekCurrent); at != 0 || err != nil {
		t.Errorf("the position of the file is %d, %v", at, err)
	}
	f.Close()
	if n, err := c.SendFile(f, 0, 1); n != 0 || !errors.Is(err, os.ErrClosed) {
		t.Errorf("SendFile of a closed file = %d, %v", n, err)
	}
}

func TestPortableClosed(t *testing.T) {
	l := listenOn(t, sock.Loopback)
	c, _ := connectPair(t, l)
	h := c.Handle()
	must(t, c.Close())
	if c.Handle() != ^uintptr(0) || c.Handle() == h {
		t.Error("the closed Socket has a handle")
	}
	for name, err := range map[string]error{
		"Close":      c.Close(),
		"Recv":       justErr(c.Recv(make([]byte, 1))),
		"Send":       justErr(c.Send([]byte("x"))),
		"Connect":    c.Connect(l.LocalAddr()),
		"Err":        c.Err(),
		"SetNoDelay": c.SetNoDelay(true),
		"SendTo":     c.SendTo(nil, l.LocalAddr()),
	} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s = %v", name, err)
		}
	}
	client, _ := connectPair(t, l) // a closed Socket can be reused
	must(t, client.Close())
	d := mustNew(t, sock.TCP4)
	d.Connect(l.LocalAddr())
	must(t, retry(t, func() error { return l.AcceptInto(client) }))
	defer client.Close()
	sendAll(t, d, "again")
	wantRecv(t, client, "again")
}

func justErr(_ int, err error) error { return err }

func TestPortableOptions(t *testing.T) {
	c, _ := connectPair(t, listenOn(t, sock.Loopback))
	six, err := sock.New(sock.TCP6)
	if err == nil {
		defer six.Close()
		err = six.SetDualStack(true)
	}
	if err != nil {
		t.Log("no IPv6:", err)
	}
	maybe := func(err error) error {
		if errors.Is(err, errors.ErrUnsupported) {
			return nil
		}
		return err
	}
	for name, err := range map[string]error{
		"SetNoDelay":                 c.SetNoDelay(true),
		"SetKeepAlive, off":          c.SetKeepAlive(net.KeepAliveConfig{}),
		"SetKeepAlive, the system's": c.SetKeepAlive(net.KeepAliveConfig{Enable: true, Idle: -1, Interval: -1, Count: -1}),
		"SetKeepAlive, net's":        maybe(c.SetKeepAlive(net.KeepAliveConfig{Enable: true})),
		"SetKeepAlive, one's own":    maybe(c.SetKeepAlive(net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 1, Count: 3})),
		"SetReadBuffer":              c.SetReadBuffer(1 << 14),
		"SetWriteBuffer":             c.SetWriteBuffer(1 << 14),
		"SetLinger":                  c.SetLinger(-1),
		"SetReusePort":               maybe(mustNew(t, sock.UDP4).SetReusePort(true)),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c.SetLinger(1) == nil {
		t.Error("SetLinger with a positive time succeeded")
	}
	group, err := sock.ListenTCPGroup(sock.Loopback, sock.ListenOptions{}, 3)
	if maybe(err) != nil {
		t.Error(err)
	}
	for _, l := range group {
		l.Close()
	}
}

func TestPortableUnix(t *testing.T) {
	dir, err := os.MkdirTemp("", "s") // shorter than t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	l, err := sock.ListenUnix(path, sock.ListenOptions{})
	l = mustMake(t, l, err)
	if got := l.LocalPath(); got != path {
		t.Errorf("LocalPath = %q", got)
	}
	c := mustNew(t, sock.Unix)
	must(t, retry(t, func() error { return c.ConnectUnix(path) }))
	var s *sock.Socket
	if err := retry(t, func() (err error) { s, err = l.Accept(); return err }); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sendAll(t, c, "by path")
	wantRecv(t, s, "by path")
	c.Close()
	wantEOF(t, s)
}

func TestPortablePair(t *testing.T) {
	for _, datagram := range []bool{false, true} {
		t.Run(map[bool]string{false: "stream", true: "datagram"}[datagram], func(t *testing.T) {
			a, b, err := sock.UnixPair(datagram)
			a = mustMake(t, a, err)
			b = mustMake(t, b, nil)
			if _, err := a.Recv(make([]byte, 1)); err != sock.ErrWouldBlock {
				t.Errorf("Recv without data = %v", err)
			}
			sendAll(t, a, "there")
			sendAll(t, b, "back")
			wantRecv(t, b, "there")
			wantRecv(t, a, "back")
		})
	}
}

// A connection is detached from package net and attached again, also during a Read.
func TestPortableDetach(t *testing.T) {
	mustNew(t, sock.TCP4) // skips the test if the system has no sockets
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, reading := range []bool{false, true} {
		t.Run(map[bool]string{false: "idle", true: "reading"}[reading], func(t *testing.T) {
			client, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			server, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			var read chan error
			if reading {
				read = make(chan error, 1)
				go func() {
					// The first byte proves that the reader has started.
					b := make([]byte, 1)
					_, err := client.Read(b)
					read <- err
					_, err = client.Read(b)
					read <- err
				}()
				server.Write([]byte("1"))
				must(t, <-read)
			}
			s, err := sock.Detach(client, sock.MakeNonblocking)
			s = mustMake(t, s, err)
			if reading {
				if err := <-read; !errors.Is(err, net.ErrClosed) {
					t.Errorf("the reader got %v", err)
				}
			}
			if _, err := client.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Read on the detached connection: %v", err)
			}
			if _, err := s.Recv(make([]byte, 1)); err != sock.ErrWouldBlock {
				t.Errorf("Recv without data = %v", err)
			}
			server.Write([]byte("to it"))
			wantRecv(t, s, "to it")
			sendAll(t, s, "from it")
			b := make([]byte, 7)
			if _, err := io.ReadFull(server, b); string(b) != "from it" {
				t.Errorf("%q, %v", b, err)
			}

			c, err := sock.Attach(s)
			if err != nil {
				noAttach(t)
				t.Fatal(err)
			}
			defer c.Close()
			c.Write([]byte("again"))
			if _, err := io.ReadFull(server, b[:5]); string(b[:5]) != "again" {
				t.Errorf("%q, %v", b[:5], err)
			}
			server.Close()
			if _, err := c.Read(b); err != io.EOF {
				t.Errorf("Read = %v", err)
			}
		})
	}
}

// noAttach skips the test under Wine, where Attach fails: os.NewFile associates every socket with a completion port.
func noAttach(t *testing.T) {
	t.Helper()
	if wine.KeepsPort.Here() {
		t.Skip(wine.KeepsPort)
	}
}

func TestPortableAttachListener(t *testing.T) {
	s := listenOn(t, sock.Loopback)
	l, err := sock.AttachListener(s)
	if err != nil {
		noAttach(t)
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	d, err := sock.Detach(l, sock.MakeNonblocking)
	d = mustMake(t, d, err)
	c1, _ := connectPair(t, d)
	c1.Close()
}

func TestPortableAdopt(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := sock.Adopt(f.Fd(), sock.MakeNonblocking); err == nil {
		t.Error("Adopt of an invalid handle succeeded")
	}
	if sock.IsExhausted(err) || sock.IsExhausted(nil) {
		t.Error("IsExhausted")
	}
}

// sendBatch calls SendBatch. Where the emulator of a processor cuts batches, it calls it again for the rest.
func sendBatch(s *sock.Socket, msgs []sock.Message) (int, error) {
	msgs = msgs[:min(len(msgs), sock.MaxBatch)]
	sent, err := s.SendBatch(msgs)
	for qemu.CutsBatch.Here() && err == nil && sent < len(msgs) {
		n, err := s.SendBatch(msgs[sent:])
		if sent += n; err != nil {
			break // the first message that was not sent cannot be sent
		}
	}
	return sent, err
}
