package server_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/socknotify/socknotify/server"
)

// A frames handler has a protocol whose messages begin with their length.
type frames struct{}

func (frames) Open(c *server.Conn[int]) error { return nil }

func (frames) Data(c *server.Conn[int], buf []byte) error {
	for {
		head, err := c.Peek(4)
		if err != nil {
			return err // sock.ErrWouldBlock: Data is called again when there is more
		}
		frame, err := c.Next(4 + int(binary.BigEndian.Uint32(head))) // ErrTooLong beyond MaxMessage
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(c, "%q\n", frame[4:]); err != nil {
			return err
		}
	}
}

func (frames) Close(c *server.Conn[int], cause error) {}

// Messages that begin with their length. A message is handled when all of it has come.
func ExampleConn_Next() {
	run(frames{}, func(client net.Conn) {
		client.Write([]byte("\x00\x00\x00\x05hello\x00\x00\x00\x03yo"))
		client.Write([]byte("u"))
		client.(*net.TCPConn).CloseWrite()
		answer, _ := io.ReadAll(client)
		fmt.Printf("%s", answer)
	})
	// Output:
	// "hello"
	// "you"
}

// An anything handler answers each line with as many bytes as it asks for.
type anything struct{}

func (anything) Open(c *server.Conn[int]) error { return nil }

func (anything) Data(c *server.Conn[int], buf []byte) error {
	line, err := c.Line(20)
	if err != nil {
		return err
	}
	var n int64
	if _, err := fmt.Sscan(string(line), &n); err != nil {
		return err
	}
	if err := c.Stream(io.LimitReader(blank{}, n)); err != nil { // returns at once
		return err
	}
	_, err = c.Write([]byte("end"))
	return err
}

func (anything) Close(c *server.Conn[int], cause error) {}

// A blank is an endless reader.
type blank struct{}

func (blank) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// An answer of 10 MB in the memory of one piece.
func ExampleConn_Stream() {
	run(anything{}, func(client net.Conn) {
		fmt.Fprintln(client, 10_000_000)
		n, err := io.CopyN(io.Discard, client, 10_000_000)
		fmt.Println(n, err)
		end := make([]byte, 3)
		io.ReadFull(client, end)
		fmt.Printf("%s\n", end)
	})
	// Output:
	// 10000000 <nil>
	// end
}

// A patient handler looks each line up in another goroutine, for a limited time.
type patient struct {
	limit  time.Duration
	lookUp func(ctx context.Context, name string) string
}

func (patient) Open(c *server.Conn[int]) error { return nil }

func (h patient) Data(c *server.Conn[int], buf []byte) error {
	line, err := c.Line(100)
	if err != nil {
		return err
	}
	name, ctx := string(line), c.Context() // which is done when the connection ends
	c.Pause()
	late := c.AfterFunc(h.limit, func(c *server.Conn[int]) error {
		fmt.Fprintf(c, "%s: no answer in time\n", name)
		return c.Resume()
	})
	go func() {
		answer := h.lookUp(ctx, name)
		if late.Stop() { // otherwise the client has its answer
			fmt.Fprintf(c, "%s: %s\n", name, answer)
			c.Resume()
		}
	}()
	return nil
}

func (patient) Close(c *server.Conn[int], cause error) {}

// A timer answers where a goroutine takes too long.
func ExampleConn_AfterFunc() {
	ask := func(h patient) {
		run(h, func(client net.Conn) {
			fmt.Fprintln(client, "pi")
			answer, _ := bufio.NewReader(client).ReadString('\n')
			fmt.Print(answer)
		})
	}
	ask(patient{time.Hour, func(ctx context.Context, name string) string { return "3.14" }})
	ask(patient{10 * time.Millisecond, func(ctx context.Context, name string) string {
		<-ctx.Done() // a look-up that takes too long
		return ""
	}})
	// Output:
	// pi: 3.14
	// pi: no answer in time
}
