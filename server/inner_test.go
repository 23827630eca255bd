package server

import (
	"net/netip"
	"testing"

	"github.com/socknotify/socknotify/sock"
)

// A counter is the smallest handler, with a pointer for its state.
type counter struct{}

func (counter) Open(c *Conn[*int]) error { return nil }
func (counter) Data(c *Conn[*int], buf []byte) error {
	n, err := c.Read(buf)
	if err == nil {
		_, err = c.Write(buf[:n])
	}
	return err
}
func (counter) Close(c *Conn[*int], cause error) {}

// serving starts a server.
func serving(tb testing.TB, s *Server[*int]) netip.AddrPort {
	tb.Helper()
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	addr := l.LocalAddr()
	done := make(chan error, 1)
	go func() { done <- s.ServeSocket(l) }()
	tb.Cleanup(func() {
		s.Close()
		if err := <-done; err != ErrServerClosed {
			tb.Errorf("ServeSocket = %v", err)
		}
		if err := s.Shutdown(tb.Context()); err != nil && tb.Context().Err() == nil {
			tb.Error(err)
		}
		<-s.stopped
	})
	return addr
}
