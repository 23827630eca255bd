package docs_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	sn "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// The code of the how-to pages is in files named after them. The tests run it on every backend.

const oneShot = sn.TriggerLevel | sn.TriggerOneShot

// A client is the client of the pages.
type client struct {
	socket *sock.Socket
	buf    [64]byte
}

// serve echoes one chunk.
func (c *client) serve() error {
	n, err := c.socket.Recv(c.buf[:])
	if err == sock.ErrWouldBlock {
		return nil
	}
	if err != nil {
		return err
	}
	if sent, err := c.socket.Send(c.buf[:n]); err != nil || sent < n {
		return errors.Join(err, io.ErrShortWrite)
	}
	return nil
}

func (c *client) free() { c.socket.Close() }

// do processes one registration and returns its result.
func do(port *sn.Port[*client], reg sn.Registration[*client]) error {
	regs := []sn.Registration[*client]{reg}
	if _, err := port.Process(regs, nil, 0); err != nil {
		return err
	}
	return regs[0].Result
}

// open opens a port and a listener.
func open(t *testing.T, options ...sn.Option) (*sn.Port[*client], *sock.Socket) {
	t.Helper()
	port, err := sn.New[*client](options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { port.Close() })
	listener, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return port, listener
}

// echoed verifies that an address echoes on several connections, and closes them when the peer does.
func echoed(t *testing.T, addr string) {
	t.Helper()
	var clients sync.WaitGroup
	for range 10 {
		clients.Go(func() {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(5 * time.Minute))
			for _, text := range []string{"one", "two", "three"} {
				got := make([]byte, len(text))
				if _, err := io.WriteString(c, text); err != nil {
					t.Error(err)
				}
				if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
					t.Errorf("echo %q, %v", got, err)
				}
			}
			c.(*net.TCPConn).CloseWrite()
			if n, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("read %d bytes, %v; want the server to close", n, err)
			}
		})
	}
	clients.Wait()
}

// ends runs loops, and returns a function that closes the port and verifies that they return ErrClosed.
func ends(t *testing.T, port *sn.Port[*client], loops ...func() error) (closed func()) {
	t.Helper()
	var running sync.WaitGroup
	for _, loop := range loops {
		running.Go(func() {
			if err := loop(); err != sn.ErrClosed {
				t.Errorf("ended by %v", err)
			}
		})
	}
	return func() {
		port.Close()
		running.Wait()
	}
}
