package server

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// A rot is a transport that changes every byte on its way.
type rot struct{ c *conn }

func (r rot) Read(b []byte) (int, error) {
	n, err := r.c.recv(b)
	for i := range b[:n] {
		b[i]++
	}
	return n, err
}

func (r rot) Write(b []byte) (int, error) {
	b = bytes.Clone(b)
	for i := range b {
		b[i]++
	}
	return r.c.send(b)
}

func (r rot) CloseWrite() error { return r.c.shut() }

// rotten puts its transport under each connection, and answers one batch with the end of the stream.
type rotten struct{ counter }

func (rotten) Open(c *Conn[*int]) error {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	c.conn.ensureExtra().transport = rot{&c.conn}
	c.conn.wrapped = true
	return nil
}

func (r rotten) Data(c *Conn[*int], buf []byte) error {
	err := r.counter.Data(c, buf)
	if err == io.EOF {
		return c.CloseWrite()
	}
	return err
}

// Every byte of a connection passes through its transport, in both directions, also queued ones.
func TestTransport(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		c, err := net.Dial("tcp", servingOn(t, &Server[*int]{Handler: rotten{}, Backend: backend}).String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(5 * time.Minute)) // 10 MiB, on a machine that may be busy
		sent := bytes.Repeat([]byte("0123456789"), 1<<20)
		done := make(chan error, 1)
		go func() {
			_, err := c.Write(sent)
			c.(*net.TCPConn).CloseWrite()
			done <- err
		}()
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, bytes.Repeat([]byte("23456789:;"), 1<<20)) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
