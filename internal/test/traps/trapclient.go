package traps

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"
)

// trapKinds are the kinds of connections of which a hook is called, and whether Unwrap is.
var kinds = map[string]bool{"plain": false, "wrapped": true, "TLS": true, "wrapped TLS": true}

// A Client talks to a server in which a trap may be sprung at any time.
type Client struct {
	T    *testing.T
	P    *Trap
	Kind string
	addr string
}

// dial returns a connection. The handshake may fail later.
func (c *Client) Dial() net.Conn {
	c.T.Helper()
	conn, err := net.Dial("tcp", c.addr)
	if err != nil && c.P.Sprung() { // it was reset already
		var other net.Conn
		conn, other = net.Pipe()
		other.Close()
		return conn
	}
	check.OK(c.T, err)
	conn.SetDeadline(time.Now().Add(2 * conntest.Timeout))
	if c.Kind == "TLS" || c.Kind == "wrapped TLS" {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	return conn
}

// Exchanged sends text, and reports whether there was an answer of n bytes.
func Exchanged(conn net.Conn, text string, n int) bool {
	if _, err := io.WriteString(conn, text); err != nil {
		return false
	}
	_, err := io.ReadFull(conn, make([]byte, n))
	return err == nil
}

// listener returns the listener of a server, below TLS, and Unwrap.
func (c *Client) Listen() (net.Listener, func(net.Conn) net.Conn) {
	ln := net.Listener(conntest.Listen(c.T))
	c.addr = ln.Addr().String()
	if c.Kind == "wrapped" || c.Kind == "wrapped TLS" {
		ln = conntest.Wrapping(ln, func(conn net.Conn) net.Conn { return conntest.Opaque(conn) })
	}
	return ln, func(conn net.Conn) net.Conn {
		c.P.Call("Unwrap")
		if o, ok := conn.(conntest.OpaqueConn); ok {
			return o.Hidden
		}
		return nil
	}
}

func (c *Client) Secure() bool { return c.Kind == "TLS" || c.Kind == "wrapped TLS" }

// EachKind runs a test for each kind of connection, with each hook.
func EachKind(t *testing.T, hooks []string, test func(t *testing.T, c *Client)) {
	for kind, unwraps := range kinds {
		all := hooks
		if unwraps {
			all = append([]string{"Unwrap"}, hooks...)
		}
		t.Run(kind, func(t *testing.T) {
			Each(t, all, func(t *testing.T, p *Trap) { test(t, &Client{T: t, P: p, Kind: kind}) })
		})
	}
}

// Background runs serve, and waits at the end of the test until it has returned or ended its goroutine.
func Background(t *testing.T, serve func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		serve()
	}()
	t.Cleanup(func() { await.Value(t, done) })
}

// talk has a conversation of a few messages on a connection.
func (c *Client) Talk(text string) {
	conn := c.Dial()
	for range 4 {
		if !Exchanged(conn, text, len(text)) {
			break
		}
	}
	if !c.P.Sprung() { // Closed, and what closes
		conn.Close()
		return
	}
	c.P.Rest(c.T, conn)
}

// Exits runs f on a goroutine of its own, and waits for its end.
func Exits(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}
