package server

import (
	"crypto/tls"
	"testing"

	testawait "github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/server/internal/conn"
)

// The options of a Server reach the server that runs, and its connections.
func TestOptionsAreCopied(t *testing.T) {
	s := Server[string]{Workers: 3, MaxQueued: 5, Name: "n", ReadRate: Rate{PerSecond: 1, Burst: 2},
		TLSConfig: new(tls.Config)}
	c := configOf(&s)
	if o := c.opts; o.Workers != 3 || o.Name != "n" || o.ReadRate != s.ReadRate || o.TLSConfig != s.TLSConfig {
		t.Errorf("the server has %+v", o)
	}
	var o conn.Options
	copyOptions(&o, c.opts)
	if want := (conn.Options{MaxQueued: 5, ReadRate: s.ReadRate}); o != want {
		t.Errorf("connections have %+v, want %+v", o, want)
	}
	if c.handler != nil {
		t.Error("config has a handler, and Server has none")
	}
}

// A wide is a handler whose connections have a state of many bytes.
type wide struct{ got chan [100]int }

func (h wide) Open(c *Conn[[100]int]) error {
	for i := range c.Value {
		c.Value[i] = i
	}
	return nil
}

func (h wide) Data(c *Conn[[100]int], buf []byte) error {
	n, err := c.Read(buf)
	if n > 0 {
		c.Value[99] += n
	}
	return err
}

func (h wide) Writable(c *Conn[[100]int]) error { return nil }

func (h wide) Close(c *Conn[[100]int], cause error) { h.got <- c.Value }

// The calls of a handler are given the Conn that newConn has made, with its state, whatever the
// state's type is.
func TestConnOf(t *testing.T) {
	h := wide{make(chan [100]int, 1)}
	calls := newTyped[[100]int](nil, h)
	c := calls.newConn()
	if err := calls.Open(c); err != nil {
		t.Fatal(err)
	}
	if typed := connOf[[100]int](c); &typed.in != c || typed.Value[98] != 98 {
		t.Errorf("another connection, with state %v", typed.Value)
	}
	calls.Close(c, nil)
	if state := <-h.got; state[98] != 98 {
		t.Errorf("Close has got %v", state)
	}
	if err := newTyped[*int](nil, counter{}).Writable(c); err != nil {
		t.Errorf("Writable of a handler that has none: %v", err)
	}
	peer := dialTCP(t, servingOn(t, &Server[[100]int]{Handler: h}).String())
	if _, err := peer.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	peer.Close()
	if state := testawait.Receive(t, "Close is called", h.got); state[98] != 98 || state[99] != 104 {
		t.Errorf("Close has got %v", state)
	}
}
