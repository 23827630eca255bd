package conformance

import (
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"weak"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// A conn is what package net's connections have in common here.
type conn interface {
	net.Conn
	syscall.Conn
}

// A netConn is a connection of package net as a script's socket.
type netConn struct{ conn }

func (c netConn) Recv(b []byte) (int, error) { return c.Read(b) }

// Handle is the number of the connection's socket.
func (c netConn) Handle() (number uintptr) {
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(n uintptr) { number = n })
	}
	return number
}

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("%v", err)
	}
}

// mustDo is must with what has failed.
func (e *env) mustDo(what string, err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("%s: %v", what, err)
	}
}

// netPair makes a connection of package net, and its peer.
func (e *env) netPair(network string) (a, b conn) {
	e.Helper()
	address := "127.0.0.1:0"
	if strings.HasPrefix(network, "unix") {
		address = e.socketPath()
	}
	var x, y net.Conn
	switch network {
	case "udp":
		bound, err := net.ListenPacket(network, address)
		e.must(err)
		x, err = net.Dial(network, bound.LocalAddr().String())
		e.must(err)
		to := x.LocalAddr().(*net.UDPAddr)
		here := bound.LocalAddr().(*net.UDPAddr)
		bound.Close()
		y, err = net.DialUDP(network, here, to)
		e.must(err)
	case "unixgram":
		here, there := &net.UnixAddr{Name: address, Net: network}, &net.UnixAddr{Name: address + "2", Net: network}
		bound, err := net.ListenUnixgram(network, here)
		e.must(err)
		x = bound
		y, err = net.DialUnix(network, there, here)
		e.must(err)
	default:
		l, err := net.Listen(network, address)
		e.must(err)
		x, err = net.Dial(network, l.Addr().String())
		e.must(err)
		y, err = l.Accept()
		e.must(err)
		l.Close()
	}
	e.Cleanup(func() { x.Close(); y.Close() })
	return x.(conn), y.(conn)
}

// supported leaves out the networks that this system has not.
func (e *env) supported(networks ...string) []string {
	return slices.DeleteFunc(networks, func(network string) bool {
		if !strings.HasPrefix(network, "unix") {
			return false
		}
		path := e.socketPath()
		if network == "unixgram" {
			c, err := net.ListenPacket(network, path)
			if err == nil {
				c.Close()
			}
			return err != nil
		}
		l, err := net.Listen(network, path)
		if err == nil {
			l.Close()
		}
		return err != nil
	})
}

func everyListener(e *env) {
	p := e.port()
	for _, network := range e.supported("tcp", "unix", "unixpacket") {
		address := "127.0.0.1:0"
		if network != "tcp" {
			address = e.socketPath()
		}
		l, err := net.Listen(network, address)
		e.must(err)
		c := theConn{l.(syscall.Conn)}
		e.do(p, enable(c, network, in|hangup, level))
		e.none(p)
		x, err := net.Dial(network, l.Addr().String())
		e.must(err)
		e.want(p, network, in)
		y, err := l.Accept()
		e.must(err)
		e.none(p)
		x.Close()
		y.Close()
		l.Close()
		e.refused(p, remove(c), socknotify.ErrNotRegistered, net.ErrClosed)
		e.none(p)
	}
}

// connKeptReachable forgets a registered connection, which must not be closed by that.
func connKeptReachable(e *env) {
	p := e.port()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	e.must(err)
	defer l.Close()
	func() {
		c, err := net.Dial("tcp", l.Addr().String())
		e.must(err)
		e.do(p, enable(netConn{c.(conn)}, "k", in, level))
	}()
	peer, err := l.Accept()
	e.must(err)
	defer peer.Close()
	for range 5 {
		runtime.GC()
		runtime.Gosched()
	}
	_, err = peer.Write([]byte("x"))
	e.must(err)
	e.want(p, "k", in)
	p.Close()
	// Now it is unreachable, and its end shows.
	e.collected("the forgotten connection", func() bool {
		e.must(peer.SetReadDeadline(time.Now().Add(time.Millisecond)))
		n, err := peer.Read(make([]byte, 1))
		if n > 0 {
			e.Fatalf("data from nowhere")
		}
		return !errors.Is(err, os.ErrDeadlineExceeded)
	})
}

// removedConn removes a connection in one of three ways, and returns what was reachable with it.
//
//go:noinline
func (e *env) removedConn(p *port, way int) (weak.Pointer[net.UDPConn], weak.Pointer[key]) {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	e.must(err)
	k := &key{"weak"}
	conn := netConn{c}
	e.do(p, enable(conn, k, in, level))
	switch way {
	case 0:
		e.do(p, remove(conn))
		e.next(p)
	case 1:
		_, err := p.Deregister(remove(conn))
		e.must(err)
	}
	c.Close()
	if way == 2 {
		e.refused(p, remove(conn), net.ErrClosed)
	}
	return weak.Make(c), weak.Make(k)
}

func connReleased(e *env) {
	p := e.port()
	for way := range 3 {
		c, k := e.removedConn(p, way)
		e.collected("a removed connection", func() bool { return c.Value() == nil })
		e.collected("its key", func() bool { return k.Value() == nil })
	}
	runtime.KeepAlive(p)
}

// An uncomparableConn cannot be a key of the port's own tables.
type uncomparableConn struct {
	conn
	_ []int
}

// A brokenConn fails in every way that a caller's code can, or ends its goroutine, as t.Fatal does
// in a fake connection.
type brokenConn struct {
	conn
	how string
}

var errBroken = errors.New("broken")

func (c *brokenConn) SyscallConn() (syscall.RawConn, error) {
	switch c.how {
	case "error":
		return nil, errBroken
	case "panic":
		panic(errBroken)
	case "ends":
		runtime.Goexit()
	}
	return brokenRaw{c}, nil
}

type brokenRaw struct{ *brokenConn }

func (brokenRaw) Read(func(uintptr) bool) error  { return errBroken }
func (brokenRaw) Write(func(uintptr) bool) error { return errBroken }

func (c brokenRaw) Control(f func(uintptr)) error {
	switch c.how {
	case "control-panics":
		panic("no control")
	case "control-fails":
		return errBroken
	case "control-does-nothing":
		return nil
	case "control-ends":
		runtime.Goexit()
	}
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { // "control-ends-late"
		f(fd)
		runtime.Goexit()
	})
}

// A theConn is any syscall.Conn as a script's socket. It has no number of its own.
type theConn struct{ syscall.Conn }

func (theConn) Handle() uintptr { return 0 }

// strange makes a connection that is none, or that fails: nil-tcp, zero-tcp, nil-sock,
// "uncomparable" and a connection, "embedded" and a socket, or a way of brokenConn and perhaps a
// connection.
func (r *run) strange(a []string) handle {
	switch a[0] {
	case "nil-tcp":
		return theConn{(*net.TCPConn)(nil)}
	case "zero-tcp":
		return theConn{&net.TCPConn{}}
	case "nil-sock":
		return theConn{(*sock.Socket)(nil)}
	case "uncomparable":
		return theConn{uncomparableConn{conn: r.handle(a[1]).(netConn).conn}}
	case "embedded":
		return theConn{&struct{ *sock.Socket }{r.socket(a[1]).Socket}}
	}
	broken := &brokenConn{how: a[0]}
	if len(a) > 1 {
		broken.conn = r.handle(a[1]).(netConn).conn
	}
	return theConn{broken}
}

// ends runs f, which must end its goroutine.
func (e *env) ends(f func()) {
	e.Helper()
	ended := make(chan error, 1)
	go func() {
		var err error
		defer func() { ended <- err }()
		f()
		err = errors.New("it returned")
	}()
	e.end(ended, "a call that ends its goroutine")
}
