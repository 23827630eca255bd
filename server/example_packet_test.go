package server_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"net"

	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

// A shouter sends datagrams back in capitals.
type shouter struct{}

func (shouter) Datagrams(c *server.PacketConn, in []sock.Message) {
	for i := range in {
		in[i].Buf = bytes.ToUpper(in[i].Buf[:in[i].N])
	}
	c.Send(in) // each goes to where it came from
}

func ExamplePacketServer() {
	socket, err := sock.ListenUDP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	addr := socket.LocalAddr().String()
	s := &server.PacketServer{Handler: shouter{}}
	served := make(chan error)
	go func() { served <- s.ServeSocket(socket) }()

	client, err := net.Dial("udp", addr)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	fmt.Fprint(client, "hello")
	buf := make([]byte, 64)
	n, err := client.Read(buf)
	fmt.Printf("%s %v\n", buf[:n], err)
	fmt.Println(s.Stats().Received)

	s.Shutdown(context.Background())
	fmt.Println(<-served)
	// Output:
	// HELLO <nil>
	// 1
	// server: closed
}

// A socket of package net, which the server takes over.
func ExamplePacketServer_Serve() {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	addr := conn.LocalAddr().String()
	same := make(chan bool, 1)
	s := &server.PacketServer{Handler: datagrams(func(c *server.PacketConn, _ []sock.Message) {
		same <- c.LocalAddr().String() == addr
	})}
	served := make(chan error)
	go func() { served <- s.Serve(conn) }()

	client, err := net.Dial("udp", addr)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	fmt.Fprint(client, "hello")
	fmt.Println(<-same)
	s.Close()
	fmt.Println(<-served)
	s.Shutdown(context.Background()) // waits for the handlers
	// Output:
	// true
	// server: closed
}

// datagrams is a handler that is a function.
type datagrams func(c *server.PacketConn, in []sock.Message)

func (f datagrams) Datagrams(c *server.PacketConn, in []sock.Message) { f(c, in) }

// A complete program.
func ExamplePacketServer_ListenAndServe() {
	s := &server.PacketServer{Handler: shouter{}, MaxMessage: 1500}
	log.Fatal(s.ListenAndServe("udp", ":7000"))
}
