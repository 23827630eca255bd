package sock_test

import (
	"fmt"
	"io"
	"log"
	"net"

	"github.com/socknotify/socknotify/sock"
)

// A connection that was accepted with a port is passed to a library that requires a net.Conn.
func ExampleAttach() {
	s, client := connected()
	defer client.Close()
	conn, err := sock.Attach(s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(conn, "hello")
	conn.Close()
	got, _ := io.ReadAll(client)
	fmt.Printf("%s, %v\n", got, s.Err() != nil)
	// Output: hello, true
}

func ExampleAttachListener() {
	s, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := sock.AttachListener(s) // for http.Serve, for example
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	conn, err := listener.Accept()
	fmt.Println(conn != nil, err)
	conn.Close()
	// Output: true <nil>
}

func ExampleAttachPacketConn() {
	s, err := sock.ListenUDP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := sock.AttachPacketConn(s)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	conn.WriteTo([]byte("hello"), conn.LocalAddr())
	buf := make([]byte, 16)
	n, from, err := conn.ReadFrom(buf)
	fmt.Printf("%s %t %v\n", buf[:n], from.String() == conn.LocalAddr().String(), err)
	// Output: hello true <nil>
}

// A listener of package net becomes a Socket, whose connections can be accepted with a port.
func ExampleDetach_listener() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	s, err := sock.Detach(listener, sock.MakeNonblocking)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	_, err = s.Accept()
	fmt.Println(err, s.LocalAddr().String() == listener.Addr().String())
	// Output: sock: operation would block true
}

// The connection remains usable with package net, and both share one socket.
func ExampleDup() {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	s, err := sock.Dup(conn, sock.MakeNonblocking)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	fmt.Println(s.LocalAddr().String() == conn.LocalAddr().String())
	// Output: true
}
