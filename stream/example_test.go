package stream_test

import (
	"fmt"
	"io"
	"net"

	"github.com/socknotify/socknotify/stream"
)

// A stream answers what its peer sends, and is written to by others.
func ExampleStreams() {
	streams := &stream.Streams{OnInput: func(s *stream.Stream, b []byte) error {
		return s.Write(b)
	}}
	serve := func(conn net.Conn) {
		s := new(stream.Stream)
		if err := streams.Open(s, conn); err != nil {
			conn.Close()
			return
		}
		s.Start(nil, nil)
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		panic(err)
	}
	conn, err := listener.Accept()
	if err != nil {
		panic(err)
	}
	listener.Close()
	serve(conn)
	client.Write([]byte("hello"))
	answer := make([]byte, 5)
	io.ReadFull(client, answer)
	fmt.Printf("%s\n", answer)

	for s := range streams.All() {
		s.Write([]byte(", and more"))
		s.Close(nil)
	}
	rest, _ := io.ReadAll(client)
	client.Close()
	fmt.Printf("%s\n", rest)
	streams.Close()
	// Output:
	// hello
	// , and more
}
