package server_test

import (
	"context"
	"fmt"
	"time"

	"github.com/socknotify/socknotify/server"
)

const (
	request  = 64   // bytes of one; a peer that sends fewer gets no answer
	lorises  = 5000 // send a byte now and then
	greedy   = 10   // send as much as they can, and never read
	goodOnes = 100  // send requests as fast as they are answered
	late     = 100  // stay, those that are let in

	most = lorises + greedy + goodOnes + late/2 // that are let in
)

// A framed answers whole requests.
type framed struct{}

type frame = server.Conn[[]byte]

func (framed) Open(*frame) error         { return nil }
func (framed) Close(c *frame, err error) {}
func (framed) Data(c *frame, buf []byte) error {
	n, err := c.Read(buf)
	if err != nil {
		return err
	}
	b := buf[:n]
	if len(c.Value) > 0 {
		b = append(c.Value, b...)
	}
	whole := len(b) - len(b)%request
	if c.Value = nil; whole < len(b) {
		c.Value = append(c.Value, b[whole:]...)
	}
	if whole > 0 {
		_, err = c.Write(b[:whole])
	}
	return err
}

// abused is the server process: it refuses connections beyond a limit, or has no descriptors for them. When it is
// interrupted it prints the result of its Shutdown.
func abused(ctx context.Context, limit string) {
	s := &server.Server[[]byte]{Handler: framed{}, Workers: 1, MaxQueued: 1 << 16, IdleTimeout: time.Minute, WriteTimeout: 2 * time.Second}
	if limit == "MaxConns" {
		s.MaxConns = most
	}
	until(ctx, s.Serve)
	st, start := s.Stats(), time.Now()
	limited, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := s.Shutdown(limited)
	fmt.Println(st.Refused, st.QueuedBytes, time.Since(start).Milliseconds(), err)
}
