//go:build !race

package server

import (
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/port"
	testawait "github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/long"
)

func eventually(tb testing.TB, cond func() bool) {
	tb.Helper()
	testawait.Until(tb, "a condition", cond)
}

// requests returns a function that makes one request of 64 bytes to an echo server and does not allocate.
func requests(t *testing.T, c net.Conn) func() {
	buf := make([]byte, 64)
	return func() {
		if _, err := c.Write(buf); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			t.Fatal(err)
		}
	}
}

// A fixed is a handler of messages of 64 bytes, which it reads through the input.
type fixed struct{ counter }

func (fixed) Data(c *Conn[*int], buf []byte) error {
	for {
		b, err := c.Next(64)
		if err != nil {
			return err
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
}

// echoes are handlers that echo 64 bytes.
var echoes = map[string]Handler[*int]{"read": counter{}, "input": fixed{}}

// A request allocates nothing, and at most one enable in twenty makes a system call.
func TestRequestCosts(t *testing.T) {
	for name, h := range echoes {
		t.Run(name, func(t *testing.T) { testRequestCosts(t, h) })
	}
}

func testRequestCosts(t *testing.T, h Handler[*int]) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		s := &Server[*int]{Handler: h, Backend: backend, Workers: 1, IdleTimeout: time.Minute}
		c := dialTCP(t, servingOn(t, s).String())
		c.SetDeadline(time.Now().Add(time.Minute))
		request := requests(t, c)
		request()
		const many = 1000
		if n := testing.AllocsPerRun(many, request); n != 0 {
			t.Errorf("%v allocations", n)
		}
		before := s.Ports()[0].Stats()
		for range many {
			request()
		}
		after := s.Ports()[0].Stats()
		asked := float64(after.Rearms-before.Rearms) / many
		t.Logf("%.3f enables that asked the kernel per request", asked)
		if port.Of(s.Ports()[0]).Core.OwnEdges && asked > 0.05 {
			t.Errorf("%.3f enables asked the kernel per request", asked)
		}
	})
}

// An idle connection costs at most 210 live bytes on epoll and 270 elsewhere, its socket and its registration included,
// also after a request.
func TestIdleConnMemory(t *testing.T) {
	long.Only(t, "it makes 5,000 connections")
	for name, h := range echoes {
		t.Run(name, func(t *testing.T) { testIdleConnMemory(t, h) })
	}
}

func testIdleConnMemory(t *testing.T, h Handler[*int]) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		// Each worker and its port have memory of their own. By default there are as many as processors.
		s := &Server[*int]{Handler: h, Backend: backend, IdleTimeout: time.Hour, Workers: 2}
		addr := servingOn(t, s)
		const n = 5000
		clients := make([]int, 0, n) // which are no part of it
		defer func() {
			for _, fd := range clients {
				unix.Close(fd)
			}
		}()
		dialTCP(t, addr.String())
		eventually(t, func() bool { return s.Stats().Conns == 1 })
		to := &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
		for len(clients) < n { // all of them first: a port's table is by number
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			clients = append(clients, fd)
		}
		before, rss := live(), resident(t)
		for _, fd := range clients {
			if err := unix.Connect(fd, to); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, func() bool { return s.Stats().Conns == n+1 })
		for _, fd := range clients {
			b := make([]byte, 64)
			if _, err := unix.Write(fd, b); err != nil {
				t.Fatal(err)
			}
			for k := 0; k < len(b); {
				m, err := unix.Read(fd, b[k:])
				if m <= 0 && err != unix.EINTR {
					t.Fatal(m, err)
				}
				k += max(m, 0)
			}
		}
		most := 270.0
		if backend == "epoll" {
			most = 210
		}
		// A client has its answer before the handler returns, and with it a buffer of 64 KiB. A worker that helps has one, too.
		var each float64
		defer func() {
			t.Logf("%.1f live bytes per idle connection, of at most %.0f; the process's resident memory grew "+
				"by %.1f KiB each", each, most, float64(resident(t)-rss)/n/1024)
		}()
		testawait.Until(t, "the live bytes per idle connection fall to the bound", func() bool {
			each = float64(live()-before) / n
			return each <= most
		})
	})
}

func live() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
