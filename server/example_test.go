package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"strings"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

// A greeter answers each line with a greeting. The state of a connection is the part of a line that has arrived.
type greeter struct{}

type greeting = server.Conn[[]byte]

func (greeter) Open(c *greeting) error {
	_, err := c.Write([]byte("who are you?\n"))
	return err
}

func (greeter) Data(c *greeting, buf []byte) error {
	n, err := c.Read(buf)
	if err != nil {
		return err // io.EOF closes
	}
	c.Value = append(c.Value, buf[:n]...)
	for {
		line, rest, found := strings.Cut(string(c.Value), "\n")
		if !found {
			return nil
		}
		c.Value = []byte(rest)
		if _, err := fmt.Fprintf(c, "hello, %s\n", line); err != nil {
			return err
		}
	}
}

func (greeter) Close(c *greeting, cause error) { fmt.Println("closed:", cause) }

// A line protocol, from its first connection to its end.
func ExampleServer() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	s := &server.Server[[]byte]{Handler: greeter{}, IdleTimeout: time.Minute, MaxConns: 1000}
	served := make(chan error)
	go func() { served <- s.Serve(ln) }()

	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	in := bufio.NewReader(client)
	question, _ := in.ReadString('\n')
	fmt.Print(question)
	fmt.Fprint(client, "wor", "ld\n")
	answer, _ := in.ReadString('\n')
	fmt.Print(answer)
	fmt.Println(s.Stats().Conns, "connection")

	s.Shutdown(context.Background()) // the client sees the end of the stream
	fmt.Println(<-served)
	_, err = in.ReadByte()
	fmt.Println(err)
	client.Close()
	// Output:
	// who are you?
	// hello, world
	// 1 connection
	// closed: <nil>
	// server: closed
	// EOF
}

// run serves a handler on a listener of package sock, talks to it, and ends it.
func run[S any](h server.Handler[S], talk func(client net.Conn)) {
	ln, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	s := &server.Server[S]{Handler: h, Workers: 2, OnStart: func(shards []*socknotify.Port[*server.Key]) {
		// For debug.Port, or a collector of metrics.
	}}
	served := make(chan error)
	go func() { served <- s.ServeSocket(ln) }()
	client, err := net.Dial("tcp", ln.LocalAddr().String())
	if err != nil {
		log.Fatal(err)
	}
	talk(client)
	client.Close()
	s.Close()
	<-served
	s.Shutdown(context.Background()) // waits for the handlers
}

// A handler pauses its connection while another goroutine waits for something, such as a look-up.
type slow struct{}

func (slow) Open(c *server.Conn[string]) error {
	c.SetIdleTimeout(time.Minute)
	c.SetWriteTimeout(10 * time.Second)
	return nil
}

func (slow) Data(c *server.Conn[string], buf []byte) error {
	if c.Value != "" { // the answer to the question before
		c.Write([]byte(c.Value))
		return c.Close()
	}
	n, err := c.Read(buf)
	if err != nil {
		return err
	}
	question := string(buf[:n])
	c.Pause() // no more Data
	go func() {
		c.Value = "the answer to " + question // what takes time
		c.Resume()                            // Data comes again
	}()
	return nil
}

func (slow) Close(c *server.Conn[string], cause error) {}

func ExampleConn_Pause() {
	run(slow{}, func(client net.Conn) {
		fmt.Fprint(client, "everything")
		answer, _ := io.ReadAll(client)
		fmt.Printf("%s\n", answer)
	})
	// Output: the answer to everything
}

// A handler gives its connections to blocking code, such as a library for a protocol.
type hijacker struct{}

func (hijacker) Open(c *server.Conn[struct{}]) error         { return nil }
func (hijacker) Close(c *server.Conn[struct{}], cause error) {}

func (hijacker) Data(c *server.Conn[struct{}], buf []byte) error {
	conn, err := c.Hijack()
	if err != nil {
		return err
	}
	go func() {
		defer conn.Close()
		line, err := bufio.NewReader(conn).ReadString('\n') // blocks until the whole line has come
		if err == nil {
			fmt.Fprint(conn, strings.ToUpper(line))
		}
	}()
	return nil
}

func ExampleConn_Hijack() {
	run(hijacker{}, func(client net.Conn) {
		fmt.Fprint(client, "hel")
		fmt.Fprint(client, "lo\n")
		answer, _ := io.ReadAll(client)
		fmt.Printf("%s", answer)
	})
	// Output: HELLO
}

// A handler has more to send than its peer takes at once: it writes as much as fits, and continues when there is room
// again.
type producer struct{ size int }

func (producer) Open(c *server.Conn[int]) error {
	c.WantWritable()
	return nil
}

func (p producer) Writable(c *server.Conn[int]) error {
	n, err := c.Write(make([]byte, min(p.size-c.Value, 64<<10)))
	c.Value += n
	switch {
	case errors.Is(err, server.ErrQueueFull): // Writable comes by itself
		return nil
	case err != nil:
		return err
	case c.Value == p.size:
		return c.CloseWrite()
	}
	c.WantWritable()
	return nil
}

func (producer) Data(c *server.Conn[int], buf []byte) error {
	_, err := c.Read(buf)
	return err
}

func (producer) Close(c *server.Conn[int], cause error) {}

func ExampleConn_WantWritable() {
	run(producer{size: 10 << 20}, func(client net.Conn) {
		n, err := io.Copy(io.Discard, client)
		fmt.Println(n, err)
	})
	// Output: 10485760 <nil>
}

// A handler aborts the connection of a peer whose request it does not understand.
type bouncer struct{}

func (bouncer) Open(c *server.Conn[struct{}]) error {
	fmt.Println(c.RemoteAddr().Network(), c.LocalAddr().Network(), c.TLS() == nil)
	return nil
}

func (bouncer) Data(c *server.Conn[struct{}], buf []byte) error {
	if _, err := c.Read(buf); err != nil {
		return err
	}
	fmt.Println(c.Queued(), "bytes queued")
	return c.Abort()
}

func (bouncer) Close(c *server.Conn[struct{}], cause error) { fmt.Println("closed:", cause) }

func ExampleConn_Abort() {
	run(bouncer{}, func(client net.Conn) {
		fmt.Fprint(client, "nonsense")
		_, err := client.Read(make([]byte, 1))
		fmt.Println(err != nil)
	})
	// Unordered output:
	// tcp tcp true
	// 0 bytes queued
	// closed: <nil>
	// true
}
