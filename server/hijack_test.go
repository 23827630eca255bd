package server_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

// A paused connection is used by another goroutine, which then calls Resume.
func TestPause(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		upper := reading(func(c conn, request string) error {
			c.Pause()
			go func() {
				c.Write([]byte(strings.ToUpper(request)))
				c.Resume()
			}()
			return nil
		})
		h := &handler{t: t, data: func(c conn, buf []byte) error { return upper(c, buf[:5]) }}
		c := dial(t, start(t, &srv{Handler: h, Backend: backend}))
		for range 200 / min(fewer(), 10) {
			send(t, c, "helloworld") // two requests
			expect(t, c, "HELLOWORLD")
		}
	})
}

// While a connection is paused it is not idle, and can be closed.
func TestPausedAndClosed(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		h := &handler{t: t}
		s := &srv{Handler: h, Backend: backend}
		addr := start(t, s)
		c := dial(t, addr)
		paused := h.conn(1)
		dial(t, addr)
		paused.Pause()
		paused.SetIdleTimeout(50 * time.Millisecond)
		h.conn(2).SetIdleTimeout(200 * time.Millisecond)
		h.wantCause(1, server.ErrIdle)
		wait(t, func() bool { return s.Stats().Conns == 1 }) // it is counted out after Close
		paused.Close()
		expectEnd(t, c, io.EOF)
		h.wantCause(2, nil)
	})
}

// hijackLines returns a function for Data that echoes byte by byte. At an "h" it hijacks the
// connection for a goroutine, which answers the next six bytes, and ends the connection if they are
// "finish".
func hijackLines(t *testing.T) func(c conn, buf []byte) error {
	return func(c conn, buf []byte) error {
		n, err := c.Read(buf[:1])
		if err != nil {
			return err
		}
		if buf[0] != 'h' {
			_, err = c.Write(buf[:n])
			return err
		}
		nc, err := c.Hijack()
		if err != nil {
			return err
		}
		if _, err := c.Read(buf); err == nil || err == sock.ErrWouldBlock {
			t.Errorf("Read of a hijacked connection = %v", err)
		}
		if _, err := c.Write(buf[:1]); err == nil {
			t.Error("Write to a hijacked connection is no error")
		}
		if _, err := c.Hijack(); err == nil {
			t.Error("a second Hijack is no error")
		}
		go func() {
			var line [6]byte
			if _, err := io.ReadFull(nc, line[:]); err != nil {
				t.Error(err)
			}
			nc.SetReadDeadline(time.Now().Add(-1))
			if _, err := nc.Read(line[:0:0]); err != nil {
				t.Error(err)
			}
			nc.SetReadDeadline(time.Time{})
			nc.Write([]byte("got " + string(line[:])))
			if string(line[:]) == "finish" {
				nc.Close()
			} else if err := c.Resume(); err != nil {
				t.Error(err)
			}
		}()
		return nil
	}
}

// sendLines has a connection hijacked and resumed many times.
func sendLines(t *testing.T, c net.Conn) {
	t.Helper()
	for range 50 {
		send(t, c, "xh")
		expect(t, c, "x")
		send(t, c, "line-1x") // the last one is for the server again
		expect(t, c, "got line-1x")
	}
	for range 50 {
		send(t, c, "xhline-2yhline-3z") // one record
		expect(t, c, "xgot line-2ygot line-3z")
	}
}

// A connection is hijacked by a blocking goroutine and resumed, several times.
func TestHijack(t *testing.T) {
	noHijack(t)
	backendtest.Each(t, func(t *testing.T, backend string) {
		before := handles.List()
		h := &handler{t: t, data: hijackLines(t)}
		s := &srv{Handler: h, Backend: backend, Workers: 1}
		addr := start(t, s)
		c := dial(t, addr)
		h.conn(1)
		idle := dial(t, addr)
		h.conn(2)
		sendLines(t, c)
		// The one worker has left this connection long ago.
		if _, err := h.conn(2).Hijack(); err == nil {
			t.Error("Hijack of an idle connection is no error")
		}
		idle.Close()
		send(t, c, "hfinish")
		expect(t, c, "got finish")
		expectEnd(t, c, io.EOF)
		h.wantCause(1, nil)
		c.Close()
		s.Close()
		shutdown(t, s)
		handles.Settle(t, before, soon)
	})
}

// Close of the server closes hijacked connections too.
func TestHijackedAndClosed(t *testing.T) {
	noHijack(t)
	backendtest.Each(t, func(t *testing.T, backend string) {
		hijacked, got := make(chan error, 1), make(chan error, 1)
		h := &handler{t: t, open: func(c conn) error {
			nc, err := c.Hijack()
			if hijacked <- err; err != nil {
				return err
			}
			go func() {
				_, err := nc.Read(make([]byte, 1))
				got <- err
				if err := c.Resume(); !errors.Is(err, net.ErrClosed) {
					t.Errorf("Resume = %v", err)
				}
			}()
			return nil
		}}
		s := &srv{Handler: h, Backend: backend}
		c := dial(t, start(t, s))
		must(t, <-hijacked)
		s.Close()
		if err := <-got; !errors.Is(err, net.ErrClosed) && err != io.EOF {
			t.Errorf("Read = %v", err)
		}
		expectEnd(t, c, io.EOF)
		h.wantCause(1, server.ErrServerClosed)
		shutdown(t, s)
	})
}
