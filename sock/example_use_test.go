package sock_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// A connection is used, shut down in one direction, and read to its end.
func ExampleSocket() {
	s, client := connected()
	defer client.Close()
	defer s.Close()
	fmt.Fprint(client, "hello")

	buf := make([]byte, 16)
	await(s, socknotify.EventIn)
	n, err := s.Recv(buf)
	fmt.Printf("%s %v\n", buf[:n], err)
	n, err = s.Send([]byte("goodbye"))
	fmt.Println(n, err)
	s.Shutdown(sock.ShutWrite)
	got, err := io.ReadAll(client)
	fmt.Printf("%s %v\n", got, err)
	// Output:
	// hello <nil>
	// 7 <nil>
	// goodbye <nil>
}

// Options that a server may set on its connections.
func ExampleSocket_SetNoDelay() {
	s, client := connected()
	defer client.Close()
	defer s.Close()
	err := errors.Join(
		s.SetNoDelay(true),
		s.SetKeepAlive(net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}),
		s.SetReadBuffer(64<<10),
		s.SetWriteBuffer(64<<10),
		s.SetLinger(0), // Close resets the connection
	)
	if errors.Is(err, errors.ErrUnsupported) {
		err = nil // the system does not support this option
	}
	now, _ := s.NoDelay()
	probes, _ := s.KeepAlive()
	fmt.Println(now, probes.Enable, err)
	// Output: true true <nil>
}

// All pending connections are accepted, without a last Accept that returns ErrWouldBlock.
func ExampleSocket_Acceptable() {
	listener, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.LocalAddr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	accepted := 0
	for listener.Acceptable() {
		s, err := listener.Accept()
		if err != nil {
			break // sock.ErrWouldBlock, if Acceptable is not exact on this system
		}
		accepted++
		s.Close()
	}
	fmt.Println(accepted)
	// Output: 1
}

// A socket accepts IPv4 and IPv6 and shares its address. Both options must be set before Bind.
func ExampleSocket_SetDualStack() {
	s, err := sock.New(sock.UDP6)
	if err != nil {
		fmt.Println("<nil>") // the machine has no IPv6
		return
	}
	defer s.Close()
	if err := s.SetReusePort(true); errors.Is(err, errors.ErrUnsupported) {
		fmt.Println("<nil>") // the system does not support it
		return
	}
	fmt.Println(s.SetDualStack(true))
	// Output: <nil>
}

// A header and a body are sent with one system call.
func ExampleSocket_SendV() {
	s, client := connected()
	defer client.Close()
	n, err := s.SendV([][]byte{[]byte("5\n"), []byte("hello")})
	s.Close()
	got, _ := io.ReadAll(client)
	fmt.Printf("%d %v %q\n", n, err, got)
	// Output: 7 <nil> "5\nhello"
}

// A part of a file is sent without copying it through the program, if the system supports that.
func ExampleSocket_SendFile() {
	f, err := os.CreateTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	f.WriteString("hello, world")

	s, client := connected()
	defer client.Close()
	n, err := s.SendFile(f, 7, 100)
	fmt.Println(n, err)
	_, err = s.SendFile(f, 12, 100)
	fmt.Println(err)
	s.Close()
	got, _ := io.ReadAll(client)
	fmt.Printf("%s\n", got)
	// Output:
	// 5 <nil>
	// EOF
	// world
}

// Several datagrams are received with one system call, if the system supports that.
func ExampleSocket_RecvBatch() {
	server, err := sock.ListenUDP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := sock.New(sock.UDP4)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	out := []sock.Message{
		{Buf: []byte("one"), Addr: server.LocalAddr()},
		{Buf: []byte("two"), Addr: server.LocalAddr()},
	}
	for len(out) > 0 {
		n, err := client.SendBatch(out)
		if err != nil {
			log.Fatal(err)
		}
		out = out[n:] // the system may send a part of them
	}

	in := make([]sock.Message, sock.MaxBatch)
	for i := range in {
		in[i].Buf = make([]byte, 1500)
	}
	for got := 0; got < 2; {
		await(server, socknotify.EventIn)
		n, err := server.RecvBatch(in)
		if err != nil {
			log.Fatal(err)
		}
		for _, m := range in[:n] {
			fmt.Printf("%s\n", m.Buf[:m.N])
		}
		got += n
	}
	// Output:
	// one
	// two
}

// A server holds a connection while it serves it. Each call is cheaper, and a concurrent Close takes effect on Release.
func ExampleSocket_Hold() {
	s, client := connected()
	defer client.Close()
	held, err := s.Hold()
	if err != nil {
		log.Fatal(err)
	}
	s.Close()
	client.Write([]byte("hello"))

	buf := make([]byte, 16)
	for {
		n, err := held.Recv(buf)
		if err == sock.ErrWouldBlock {
			time.Sleep(time.Millisecond) // it can no longer be registered
			continue
		}
		fmt.Printf("%s %v\n", buf[:n], err)
		break
	}
	fmt.Println(held.Send([]byte("good")))
	fmt.Println(held.SendV([][]byte{[]byte("b"), []byte("ye")}))
	fmt.Println(held.Socket() == s)
	held.Release()
	got, _ := io.ReadAll(client)
	fmt.Printf("%s\n", got)
	// Output:
	// hello <nil>
	// 4 <nil>
	// 3 <nil>
	// true
	// goodbye
}
