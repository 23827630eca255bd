package sock_test

import (
	"fmt"
	"io"
	"log"
	"net"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// An echo server for one connection. For each notification it receives until ErrWouldBlock and enables the registration
// again. That needs no system call if nothing has arrived since, because the socket has recorded that it is drained.
func Example() {
	port, err := socknotify.New[*sock.Socket]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	client, server, err := sock.UnixPair(false)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	defer server.Close()
	client.Send([]byte("hello"))
	client.Shutdown(sock.ShutWrite)

	regs := []socknotify.Registration[*sock.Socket]{
		socknotify.Enable(server, server, socknotify.EventIn, socknotify.TriggerLevel|socknotify.TriggerOneShot),
	}
	ready := make([]socknotify.Notification[*sock.Socket], 8)
	buffer := make([]byte, 4096)
	for open := true; open; {
		n, err := port.Process(regs, ready, 10*time.Second)
		if err != nil || regs[0].Result != nil {
			log.Fatal(err, regs[0].Result)
		}
		for _, nt := range ready[:n] {
			for {
				n, err := nt.Key.Recv(buffer)
				if err == sock.ErrWouldBlock {
					break // the next Process enables again
				}
				if err != nil { // io.EOF, or an error
					fmt.Println("server:", err)
					nt.Key.Shutdown(sock.ShutWrite)
					open = false
					break
				}
				// A server that sends more must keep the rest and wait for EventOut.
				if _, err := nt.Key.Send(buffer[:n]); err != nil {
					log.Fatal(err)
				}
			}
		}
	}
	n, err := client.Recv(buffer)
	fmt.Printf("client: %s %v\n", buffer[:n], err)
	_, err = client.Recv(buffer)
	fmt.Println("client:", err)
	// Output:
	// server: EOF
	// client: hello <nil>
	// client: EOF
}

// A connection that was accepted by package net is moved to a port and back.
func ExampleDetach() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
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
	if err != nil {
		log.Fatal(err)
	}

	s, err := sock.Detach(conn, sock.MakeNonblocking)
	if err != nil {
		log.Fatal(err)
	}
	_, err = conn.Read(make([]byte, 1))
	fmt.Println(err != nil, "the connection is the socket's now")
	n, err := s.Recv(make([]byte, 1))
	fmt.Println(n, err)

	conn, err = sock.Attach(s)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(client, "hello")
	buffer := make([]byte, 5)
	io.ReadFull(conn, buffer)
	fmt.Printf("%s\n", buffer)
	// Output:
	// true the connection is the socket's now
	// 0 sock: operation would block
	// hello
}
