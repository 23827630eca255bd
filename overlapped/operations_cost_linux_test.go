//go:build !race

package overlapped_test

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/overlapped"
	"github.com/socknotify/socknotify/sock"
)

// A callCount counts the system calls of one thread.
type callCount int

// countCalls stops the test where the system does not count.
func countCalls(t *testing.T) callCount {
	t.Helper()
	none := func(err error) bool {
		return errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, errors.ErrUnsupported)
	}
	id, err := os.ReadFile("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id")
	if none(err) {
		t.Skip("who may not trace cannot count system calls: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	event, err := strconv.ParseUint(strings.TrimSpace(string(id)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_TRACEPOINT, Config: event, Bits: unix.PerfBitDisabled,
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if none(err) {
		t.Skip("the system does not count system calls: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return callCount(fd)
}

// during counts those that f makes, and one that ends the counting.
func (c callCount) during(t *testing.T, f func()) {
	t.Helper()
	if err := unix.IoctlSetInt(int(c), unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		t.Fatal(err)
	}
	f()
	if err := unix.IoctlSetInt(int(c), unix.PERF_EVENT_IOC_DISABLE, 0); err != nil {
		t.Fatal(err)
	}
}

func (c callCount) total(t *testing.T) int {
	t.Helper()
	var b [8]byte
	if _, err := unix.Read(int(c), b[:]); err != nil {
		t.Fatal(err)
	}
	return int(binary.NativeEndian.Uint64(b[:]))
}

// A costConn echoes by operations.
type costConn struct {
	s, peer    *sock.Socket
	buf        []byte
	recv, send overlapped.Op[*costConn]
}

// tcpConns returns so many connections over loopback.
func tcpConns(t *testing.T, n int) []*costConn {
	t.Helper()
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var conns []*costConn
	for range n {
		peer, err := sock.New(sock.TCP4)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { peer.Close() })
		if err := peer.Connect(l.LocalAddr()); err != nil && err != sock.ErrWouldBlock {
			t.Fatal(err)
		}
		s, err := l.Accept()
		for err == sock.ErrWouldBlock {
			runtime.Gosched()
			s, err = l.Accept()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		conns = append(conns, &costConn{s: s, peer: peer, buf: make([]byte, 512)})
	}
	return conns
}

// An echo server of 100 busy connections makes a receive and a send for each request, and little else. Nothing is
// allocated.
func TestOverlappedEchoCosts(t *testing.T) {
	for _, c := range []struct {
		name string
		opts []Option
		most float64
	}{
		{"epoll", []Option{WithBackend("epoll")}, 2.1},
		{"poll", []Option{WithBackend("poll")}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := New[*costConn](c.opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			conns := tcpConns(t, 100)
			count := countCalls(t)
			ops := make([]overlapped.Request[*costConn], 0, 2*len(conns))
			for _, c := range conns {
				ops = append(ops, overlapped.RecvRequest(c.s, c, c.buf, &c.recv))
			}
			entries := make([]Notification[*costConn], 256)
			serve := func() { // until every request has been answered, and the next is awaited
				for waiting := len(conns); waiting > 0; {
					n, err := overlapped.Process(p, ops, entries, -1)
					if err != nil {
						t.Fatal(err)
					}
					ops = ops[:0]
					for _, e := range entries[:n] {
						c := e.Key
						switch n, err := overlapped.Of(&e).Result(); {
						case err != nil:
							t.Fatal(err)
						case overlapped.Of(&e) == &c.recv:
							ops = append(ops, overlapped.SendRequest(c.s, c, c.buf[:n], &c.send))
						default:
							ops = append(ops, overlapped.RecvRequest(c.s, c, c.buf, &c.recv))
							waiting--
						}
					}
				}
				if _, err := overlapped.Process(p, ops, nil, 0); err != nil {
					t.Fatal(err)
				}
				ops = ops[:0]
			}
			request := make([]byte, 64)
			round := func(serve func()) {
				for _, c := range conns {
					if _, err := c.peer.Send(request); err != nil {
						t.Fatal(err)
					}
				}
				serve()
				for _, c := range conns {
					if n, err := c.peer.Recv(request); n != len(request) || err != nil {
						t.Fatal(n, err)
					}
				}
			}
			round(serve)
			const rounds = 50
			if n := testing.AllocsPerRun(rounds, func() { round(serve) }); n > 0 {
				t.Errorf("%v allocations for %d requests", n, len(conns))
			}
			before := count.total(t)
			for range rounds {
				round(func() { count.during(t, serve) })
			}
			each := float64(count.total(t)-before) / rounds / float64(len(conns))
			t.Logf("%.3f system calls per request", each)
			if c.most > 0 && each > c.most {
				t.Errorf("%.3f system calls per request; want at most %.1f", each, c.most)
			}
		})
	}
}
