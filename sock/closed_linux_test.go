package sock_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/fdstate"
	"github.com/socknotify/socknotify/sock"
)

// calls holds all methods that can fail, with the Op of their errors.
var calls = map[string]struct {
	op   string
	call func(s *sock.Socket) error
}{
	"Accept":         {"accept", func(s *sock.Socket) error { return second(s.Accept()) }},
	"AcceptInto":     {"accept", func(s *sock.Socket) error { return s.AcceptInto(new(sock.Socket)) }},
	"Bind":           {"bind", func(s *sock.Socket) error { return s.Bind(sock.Loopback) }},
	"BindUnix":       {"bind", func(s *sock.Socket) error { return s.BindUnix("@x") }},
	"Close":          {"close", (*sock.Socket).Close},
	"Connect":        {"connect", func(s *sock.Socket) error { return s.Connect(sock.Loopback) }},
	"ConnectUnix":    {"connect", func(s *sock.Socket) error { return s.ConnectUnix("@x") }},
	"Err":            {"getsockopt", (*sock.Socket).Err},
	"Hold":           {"hold", func(s *sock.Socket) error { return second(s.Hold()) }},
	"KeepAlive":      {"getsockopt", func(s *sock.Socket) error { return second(s.KeepAlive()) }},
	"Listen":         {"listen", func(s *sock.Socket) error { return s.Listen(0) }},
	"NoDelay":        {"getsockopt", func(s *sock.Socket) error { return second(s.NoDelay()) }},
	"Recv":           {"recv", func(s *sock.Socket) error { return second(s.Recv(make([]byte, 8))) }},
	"RecvBatch":      {"recvmmsg", func(s *sock.Socket) error { return second(s.RecvBatch(buffers(2, 8))) }},
	"RecvFrom":       {"recvfrom", func(s *sock.Socket) error { _, _, err := s.RecvFrom(make([]byte, 8)); return err }},
	"Send":           {"send", func(s *sock.Socket) error { return second(s.Send([]byte("x"))) }},
	"SendBatch":      {"sendmmsg", func(s *sock.Socket) error { return second(s.SendBatch(buffers(2, 8))) }},
	"SendFile":       {"sendfile", func(s *sock.Socket) error { return second(s.SendFile(os.Stdin, 0, 1)) }},
	"SendTo":         {"sendto", func(s *sock.Socket) error { return s.SendTo([]byte("x"), sock.Loopback) }},
	"SendV":          {"sendmsg", func(s *sock.Socket) error { return second(s.SendV([][]byte{{'x'}})) }},
	"SetDualStack":   {"setsockopt", func(s *sock.Socket) error { return s.SetDualStack(true) }},
	"SetKeepAlive":   {"setsockopt", func(s *sock.Socket) error { return s.SetKeepAlive(net.KeepAliveConfig{}) }},
	"SetLinger":      {"setsockopt", func(s *sock.Socket) error { return s.SetLinger(0) }},
	"SetNoDelay":     {"setsockopt", func(s *sock.Socket) error { return s.SetNoDelay(true) }},
	"SetReadBuffer":  {"setsockopt", func(s *sock.Socket) error { return s.SetReadBuffer(1) }},
	"SetPacketInfo":  {"setsockopt", func(s *sock.Socket) error { return s.SetPacketInfo(true) }},
	"SetReusePort":   {"setsockopt", func(s *sock.Socket) error { return s.SetReusePort(true) }},
	"SetWriteBuffer": {"setsockopt", func(s *sock.Socket) error { return s.SetWriteBuffer(1) }},
	"Shutdown":       {"shutdown", func(s *sock.Socket) error { return s.Shutdown(sock.ShutBoth) }},

	// On a closed socket, calls with empty or invalid arguments fail with net.ErrClosed too.
	"Recv of nothing":      {"recv", func(s *sock.Socket) error { return second(s.Recv(nil)) }},
	"RecvBatch of nothing": {"recvmmsg", func(s *sock.Socket) error { return second(s.RecvBatch(nil)) }},
	"Send of nothing":      {"send", func(s *sock.Socket) error { return second(s.Send(nil)) }},
	"SendBatch of nothing": {"sendmmsg", func(s *sock.Socket) error { return second(s.SendBatch(nil)) }},
	"SendFile of nothing":  {"sendfile", func(s *sock.Socket) error { return second(s.SendFile(nil, 0, 0)) }},
	"SendV of nothing":     {"sendmsg", func(s *sock.Socket) error { return second(s.SendV(nil)) }},
	"SetLinger of 5":       {"setsockopt", func(s *sock.Socket) error { return s.SetLinger(5) }},
}

func second[T any](_ T, err error) error { return err }

func closedSockets(t *testing.T) map[string]*sock.Socket {
	t.Helper()
	zero, shut := new(sock.Socket), listen(t, sock.Loopback)
	pair, _ := unixPair(t, false)
	for _, s := range []*sock.Socket{shut, pair} {
		must(t, s.Close())
	}
	return map[string]*sock.Socket{"zero": zero, "listener": shut, "pair": pair}
}

func TestClosed(t *testing.T) {
	for name, s := range closedSockets(t) {
		t.Run(name, func(t *testing.T) {
			for _, c := range calls {
				wantError(t, c.call(s), c.op, none, net.ErrClosed)
			}
			if s.Acceptable() {
				t.Error("acceptable")
			}
			if s.Handle() != none || s.LocalAddr() != (netip.AddrPort{}) || s.RemoteAddr() != (netip.AddrPort{}) || s.LocalPath() != "" {
				t.Errorf("%d at %v, %v, %q", s.Handle(), s.LocalAddr(), s.RemoteAddr(), s.LocalPath())
			}
		})
	}
}

// TestClosed covers every method.
func TestClosedCoversMethods(t *testing.T) {
	harmless := map[string]bool{"Handle": true, "SyscallConn": true, "LocalAddr": true, "RemoteAddr": true, "LocalPath": true, "Acceptable": true}
	of := reflect.TypeFor[*sock.Socket]()
	for i := range of.NumMethod() {
		name := of.Method(i).Name
		if _, ok := calls[name]; !ok && !harmless[name] {
			t.Errorf("%s is not tested on a closed socket", name)
		}
	}
}

// A call in progress keeps the descriptor open, and no further call can start.
func TestCloseDuringCall(t *testing.T) {
	a, b := unixPair(t, false)
	h, ok := fdstate.Of(a.SyscallConn()).Use()
	if !ok {
		t.Fatal("the socket is closed")
	}
	must(t, a.Close())
	for name, c := range calls {
		if err := c.call(a); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	send(t, b, "to a descriptor that is open")
	fdstate.Of(a.SyscallConn()).Done()
	if _, err := unix.FcntlInt(h, unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("the descriptor is open: %v", err)
	}
	if _, err := b.Recv(make([]byte, 1)); err != io.EOF && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the peer sees %v", err)
	}
}

func TestConcurrentClose(t *testing.T) {
	for range 100 {
		a, _ := unixPair(t, true)
		var closed atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				a.Recv(make([]byte, 1))
				if err := a.Close(); err == nil {
					closed.Add(1)
				} else if !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if closed.Load() != 1 || a.Handle() != none {
			t.Fatalf("%d Closes succeeded, handle %d", closed.Load(), a.Handle())
		}
	}
}

// Close returns the error of the system call.
func TestCloseFails(t *testing.T) {
	a, _ := unixPair(t, false)
	h := a.Handle()
	unix.Close(int(h)) // makes the Socket's close fail
	wantError(t, a.Close(), "close", h, unix.EBADF)
	wantError(t, a.Close(), "close", none, net.ErrClosed)
}

func TestError(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&sock.Error{Op: "recv", Handle: 7, Err: unix.ECONNRESET}, "sock: recv on socket 7: connection reset by peer"},
		{&sock.Error{Op: "send", Handle: 0, Err: io.ErrShortWrite}, "sock: send on socket 0: short write"},
		{&sock.Error{Op: "accept", Handle: none, Err: net.ErrClosed}, "sock: accept: use of closed network connection"},
		{sock.ErrWouldBlock, "sock: operation would block"},
		{sock.ErrBlocking, "sock: handle is in blocking mode"},
	} {
		if c.err.Error() != c.want {
			t.Errorf("%q, want %q", c.err, c.want)
		}
	}
	err := error(&sock.Error{Op: "recv", Handle: 7, Err: unix.ECONNRESET})
	var e *sock.Error
	var errno unix.Errno
	if !errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed) || !errors.As(err, &e) || !errors.As(err, &errno) || errno != unix.ECONNRESET {
		t.Errorf("%v does not wrap its cause", err)
	}
	// ErrWouldBlock is returned without an *Error.
	a, _ := unixPair(t, false)
	if _, err := a.Recv(make([]byte, 1)); err != sock.ErrWouldBlock {
		t.Errorf("%v", err)
	}
}
