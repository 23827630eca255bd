package conformance

import (
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"weak"

	"github.com/socknotify/socknotify"
)

// X2: the standard library's connections.
var connCases = map[string]func(*env){
	"X2/EveryType":            everyConn,
	"X2/Listeners":            everyListener,
	"X2/GoesOnWorking":        connGoesOnWorking,
	"X2/AllOperations":        connOperations,
	"X2/RemoveAfterClose":     removeAfterClose,
	"X2/OperationsAfterClose": operationsAfterClose,
	"X2/ClosedAndReused":      connClosedAndReused,
	"X2/CloseRaces":           connCloseRaces,
	"X2/KeptReachable":        connKeptReachable,
	"X2/ReleasedByRemoval":    connReleased,
	"X2/Deregister":           deregisterConn,
	"X2/StrangeConns":         strangeConns,
	"X2/SecondPort":           connSecondPort,
}

// A conn is what package net's connections have in common here.
type conn interface {
	net.Conn
	syscall.Conn
}

func enableConn(c syscall.Conn, k any, filter events, t socknotify.Trigger) reg {
	return reg{Conn: c, Key: k, Filter: filter, Op: socknotify.OpEnable, Trigger: t}
}

func disableConn(c syscall.Conn) reg { return reg{Conn: c, Op: socknotify.OpDisable} }
func removeConn(c syscall.Conn) reg  { return reg{Conn: c, Op: socknotify.OpRemove} }

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("%v", err)
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

// known leaves out the networks that this system has not.
func (e *env) known(networks ...string) []string {
	e.Helper()
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

func (e *env) networks() []string {
	e.Helper()
	return e.known("tcp", "udp", "unix", "unixgram", "unixpacket")
}

func everyConn(e *env) {
	p := e.port()
	for _, network := range e.networks() {
		a, b := e.netPair(network)
		e.do(p, enableConn(a, network, in|hangup, level|oneShot))
		e.none(p)
		_, err := b.Write([]byte("x"))
		e.must(err)
		e.want(p, network, in)
		e.do(p, enableConn(a, network, in|hangup, level|oneShot), disableConn(a))
		e.none(p)
		e.do(p, enableConn(a, network, in|hangup, level|oneShot))
		e.want(p, network, in)
		e.do(p, removeConn(a))
		e.wantNow(p, network, gone)
		e.refused(p, removeConn(a), socknotify.ErrNotRegistered)
		var buf [8]byte
		n, err := a.Read(buf[:])
		if n != 1 || err != nil {
			e.Errorf("%s: read = %d, %v", network, n, err)
		}
	}
}

func everyListener(e *env) {
	p := e.port()
	for _, network := range e.known("tcp", "unix", "unixpacket") {
		address := "127.0.0.1:0"
		if network != "tcp" {
			address = e.socketPath()
		}
		l, err := net.Listen(network, address)
		e.must(err)
		c := l.(syscall.Conn)
		e.do(p, enableConn(c, network, in|hangup, level))
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
		e.refused(p, removeConn(c), socknotify.ErrNotRegistered, net.ErrClosed)
		e.none(p)
	}
}

// connGoesOnWorking uses a registered connection as if it were not.
func connGoesOnWorking(e *env) {
	p := e.port()
	a, b := e.netPair("tcp")
	e.do(p, enableConn(a, "a", in|out|hangup, edge))
	e.now(p)
	e.must(a.SetReadDeadline(time.Now().Add(time.Millisecond)))
	var buf [8]byte
	_, err := a.Read(buf[:])
	var ne net.Error
	if !errors.As(err, &ne) || !ne.Timeout() {
		e.Errorf("read with a deadline: %v", err)
	}
	e.must(a.SetReadDeadline(time.Time{}))
	read := async(func() error {
		_, err := io.ReadFull(a, buf[:2])
		return err
	})
	_, err = b.Write([]byte("xy"))
	e.must(err)
	e.end(read, "a blocking read")
	e.now(p) // the read may have been faster
	e.do(p, enableConn(a, "a", in, edge))
	_, err = b.Write([]byte("z"))
	e.must(err)
	e.want(p, "a", in)
}

func connOperations(e *env) {
	p := e.port()
	a, b := e.netPair("tcp")
	e.refused(p, disableConn(a), socknotify.ErrNotRegistered)
	e.refused(p, removeConn(a), socknotify.ErrNotRegistered)
	e.do(p, enableConn(a, "k", in, level|oneShot))
	e.refused(p, enableConn(a, "other", in, level), socknotify.ErrKeyMismatch)
	e.refused(p, reg{Conn: a, Op: socknotify.OpEnable, Trigger: 0}, socknotify.ErrInvalid)
	e.do(p, disableConn(a), enableConn(a, "k", in, level|oneShot), removeConn(a), enableConn(a, "l", in, level|oneShot))
	e.wantNow(p, "k", gone)
	_, err := b.Write([]byte("x"))
	e.must(err)
	e.want(p, "l", in)
	for range 3 {
		r := enableConn(a, "l", in, level|oneShot)
		e.do(p, r)
		e.want(p, "l", in)
	}
	// By the handle, the same registration.
	raw, err := a.SyscallConn()
	e.must(err)
	e.must(raw.Control(func(number uintptr) { e.do(p, enable(fd(number), "l", in, level|oneShot)) }))
	e.wantNow(p, "l", in)
	e.do(p, removeConn(a))
	e.wantNow(p, "l", gone)
}

func removeAfterClose(e *env) {
	p := e.port()
	for _, network := range e.networks() {
		keys := weakKeys(1, func(_ int, k *key) {
			a, _ := e.netPair(network)
			e.do(p, enableConn(a, k, in, level))
			a.Close()
			e.refused(p, removeConn(a), socknotify.ErrNotRegistered, net.ErrClosed)
			e.refused(p, removeConn(a), socknotify.ErrNotRegistered, net.ErrClosed)
		})
		e.none(p)
		e.released("the key of a closed "+network+" connection", keys)
	}
	if n := p.Stats().Registrations; n != 0 {
		e.Errorf("%d registrations", n)
	}
}

func operationsAfterClose(e *env) {
	p := e.port()
	a, _ := e.netPair("tcp")
	e.do(p, enableConn(a, "k", in, level))
	a.Close()
	e.refused(p, enableConn(a, "k", in, level), socknotify.ErrBadSocket, net.ErrClosed)
	e.refused(p, disableConn(a), socknotify.ErrNotRegistered, net.ErrClosed)
	if n := p.Stats().Registrations; n != 0 {
		e.Errorf("%d registrations", n)
	}
}

// connClosedAndReused removes a closed connection after its number has come to another.
func connClosedAndReused(e *env) {
	p := e.port()
	old, _ := e.netPair("tcp")
	var number uintptr
	raw, err := old.SyscallConn()
	e.must(err)
	e.must(raw.Control(func(n uintptr) { number = n }))
	e.do(p, enableConn(old, "old", in, level))
	old.Close()
	x, y := e.unix()
	again, peer := e.at(number, x, y)
	e.do(p, enable(again, "new", in, level|oneShot))
	e.refused(p, removeConn(old), socknotify.ErrNotRegistered, net.ErrClosed)
	e.refused(p, disableConn(old), socknotify.ErrNotRegistered, net.ErrClosed)
	e.none(p)
	e.send(peer, "x")
	e.want(p, "new", in)
	e.do(p, remove(again))
	e.want(p, "new", gone)
	e.closeFD(again)
}

func connCloseRaces(e *env) {
	p := e.port()
	stop := e.workers(p, 2, 2, func(note) {})
	known := e.known("unix", "tcp")
	for i := range 100 {
		a, b := e.netPair(known[0])
		ended := async(func() error {
			for {
				regs := []reg{enableConn(a, i, in|out, level|oneShot), disableConn(a)}
				if _, err := p.Process(regs, nil, 0); err != nil {
					return err
				}
				if r := regs[0].Result; r != nil {
					if !errors.Is(r, net.ErrClosed) {
						return r
					}
					return nil
				}
				b.Write([]byte("x"))
			}
		})
		runtime.Gosched()
		a.Close()
		e.end(ended, "registering beside Close")
		b.Close()
	}
	stop()
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
		e.do(p, enableConn(c.(conn), "k", in, level))
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
	var b [1]byte
	// Now it is unreachable, and its end shows.
	ended := async(func() error {
		if _, err := peer.Read(b[:]); err == nil {
			return errors.New("data from nowhere")
		}
		return nil
	})
	e.until("the forgotten connection is closed", func() bool {
		runtime.GC()
		select {
		case err := <-ended:
			e.must(err)
			return true
		default:
			return false
		}
	})
}

func connReleased(e *env) {
	p := e.port()
	var w []weak.Pointer[net.UDPConn]
	keys := weakKeys(3, func(i int, k *key) {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		e.must(err)
		e.do(p, enableConn(c, k, in, level))
		switch i {
		case 0:
			e.do(p, removeConn(c))
			e.next(p)
			c.Close()
		case 1:
			_, err := p.Deregister(removeConn(c))
			e.must(err)
			c.Close()
		case 2:
			c.Close()
			p.Process([]reg{removeConn(c)}, nil, 0)
		}
		w = append(w, weak.Make(c))
	})
	e.released("the key of a removed connection", keys)
	for i := range w {
		e.collected("a removed connection", func() bool { return w[i].Value() == nil })
	}
	runtime.KeepAlive(p)
}

func deregisterConn(e *env) {
	p := e.port()
	a, _ := e.netPair("tcp")
	e.do(p, enableConn(a, "k", in, level))
	if k, err := p.Deregister(removeConn(a)); k != "k" || err != nil {
		e.Errorf("Deregister = %v, %v", k, err)
	}
	e.none(p)
	_, err := p.Deregister(removeConn(a))
	e.wantErr(err, socknotify.ErrNotRegistered)
	e.do(p, enableConn(a, "k", in, level))
	a.Close()
	_, err = p.Deregister(removeConn(a))
	e.wantErr(err, socknotify.ErrNotRegistered, net.ErrClosed)
	e.none(p)
}

// An uncomparableConn cannot be a key of the port's own tables.
type uncomparableConn struct {
	conn
	_ []int
}

// A brokenConn fails in every way that a caller's code can.
type brokenConn struct{ how string }

var errBroken = errors.New("broken")

func (c *brokenConn) SyscallConn() (syscall.RawConn, error) {
	switch c.how {
	case "error":
		return nil, errBroken
	case "panic":
		panic(errBroken)
	}
	return c, nil
}

func (c *brokenConn) Read(func(uintptr) bool) error  { return errBroken }
func (c *brokenConn) Write(func(uintptr) bool) error { return errBroken }

func (c *brokenConn) Control(func(uintptr)) error {
	switch c.how {
	case "control panics":
		panic("no control")
	case "control fails":
		return errBroken
	}
	return nil // without having called anything
}

func strangeConns(e *env) {
	p := e.port()
	a, b := e.netPair("tcp")
	e.refused(p, enableConn(uncomparableConn{conn: a}, "k", in, level), socknotify.ErrInvalid)
	e.namesField(p, enableConn(uncomparableConn{conn: a}, "k", in, level), "Conn")
	for _, how := range []string{"error", "panic", "control panics", "control fails", "control does nothing"} {
		for _, op := range []socknotify.Op{socknotify.OpEnable, socknotify.OpDisable, socknotify.OpRemove} {
			r := enableConn(&brokenConn{how}, "k", in, level)
			r.Op = op
			e.refused(p, r, socknotify.ErrBadSocket)
		}
	}
	e.refused(p, enableConn((*net.TCPConn)(nil), "k", in, level), socknotify.ErrBadSocket)
	e.refused(p, enableConn(&net.TCPConn{}, "k", in, level), socknotify.ErrBadSocket)
	// Nothing of that has harmed the port.
	e.do(p, enableConn(a, "k", in, level|oneShot))
	_, err := b.Write([]byte("x"))
	e.must(err)
	e.want(p, "k", in)
}

func connSecondPort(e *env) {
	p, q := e.port(), e.port()
	a, _ := e.netPair("tcp")
	e.do(p, enableConn(a, "p", in, level))
	e.refused(q, enableConn(a, "q", in, level), socknotify.ErrOtherPort)
	e.do(p, removeConn(a))
	e.do(q, enableConn(a, "q", in, level))
	e.want(p, "p", gone)
}
