package overlapped_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/overlapped"
	"github.com/socknotify/socknotify/sock"
)

// An echoer is what a server has for each connection: its buffer, and an Op for each direction.
type echoer struct {
	socket     *sock.Socket
	buf        []byte
	recv, send overlapped.Op[*echoer]
}

// Receives and sends that complete on the port: each completion starts the connection's next operation.
func ExampleRecv() {
	port, err := socknotify.New[*echoer]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
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
	socket, err := listener.Accept()
	if err != nil {
		log.Fatal(err)
	}
	defer socket.Close()
	c := &echoer{socket: socket, buf: make([]byte, 64)}
	err = overlapped.Recv(port, c.socket, c, c.buf, &c.recv) // completes with key c; c.recv is an overlapped.Op
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(client, "hello")

	for open := true; open; {
		var one [1]socknotify.Notification[*echoer]
		if _, err := port.Process(nil, one[:], -1); err != nil {
			log.Fatal(err)
		}
		c := one[0].Key
		n, err := overlapped.Of(&one[0]).Result()
		switch {
		case err == io.EOF:
			fmt.Println("the client is done")
			open = false
			continue
		case err != nil:
			log.Fatal(err)
		case overlapped.Of(&one[0]) == &c.recv:
			fmt.Printf("received %q\n", c.buf[:n])
			err = overlapped.Send(port, c.socket, c, c.buf[:n], &c.send)
		default:
			fmt.Println("sent", n)
			io.ReadFull(client, make([]byte, n)) // or closing would reset
			client.Close()
			err = overlapped.Recv(port, c.socket, c, c.buf, &c.recv)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// received "hello"
	// sent 5
	// the client is done
}

// A connect that completes on the port.
func ExampleConnect() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	listener, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	s, err := sock.New(sock.TCP4)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	var op overlapped.Op[string]
	if err := overlapped.Connect(port, s, "client", listener.LocalAddr(), &op); err != nil {
		log.Fatal(err)
	}
	var ready [1]socknotify.Notification[string]
	if _, err := port.Process(nil, ready[:], -1); err != nil {
		log.Fatal(err)
	}
	_, err = overlapped.Of(&ready[0]).Result()
	fmt.Println(ready[0].Key, err, s.RemoteAddr() == listener.LocalAddr())
	// Output: client <nil> true
}

// Datagrams, each with its sender's address.
func ExampleRecvFrom() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	var ends [2]*sock.Socket
	for i := range ends {
		if ends[i], err = sock.New(sock.UDP4); err != nil {
			log.Fatal(err)
		}
		defer ends[i].Close()
		if err := ends[i].Bind(sock.Loopback); err != nil {
			log.Fatal(err)
		}
	}
	var in, out overlapped.Op[string]
	buffer := make([]byte, 1500)
	if err := overlapped.RecvFrom(port, ends[0], "in", buffer, &in); err != nil {
		log.Fatal(err)
	}
	if err := overlapped.SendTo(port, ends[1], "out", []byte("a datagram"), ends[0].LocalAddr(), &out); err != nil {
		log.Fatal(err)
	}
	var ready [2]socknotify.Notification[string]
	for done := 0; done < 2; {
		n, err := port.Process(nil, ready[:], -1)
		if err != nil {
			log.Fatal(err)
		}
		done += n
	}
	n, err := in.Result()
	fmt.Println(string(buffer[:n]), err, in.Addr() == ends[1].LocalAddr())
	// Output: a datagram <nil> true
}

// An operation that is given up completes all the same.
func ExampleCancel() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	s, err := sock.New(sock.UDP4)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if err := s.Bind(netip.MustParseAddrPort("127.0.0.1:0")); err != nil {
		log.Fatal(err)
	}
	var op overlapped.Op[string]
	if err := overlapped.RecvFrom(port, s, "s", make([]byte, 1500), &op); err != nil {
		log.Fatal(err)
	}
	if err := overlapped.Cancel(port, &op); err != nil {
		log.Fatal(err)
	}
	var ready [1]socknotify.Notification[string]
	if _, err := port.Process(nil, ready[:], -1); err != nil {
		log.Fatal(err)
	}
	_, err = overlapped.Of(&ready[0]).Result()
	fmt.Println(ready[0].Key, errors.Is(err, overlapped.ErrCanceled))
	// Output: s true
}

// A file is written and read beside the sockets.
func ExampleReadAt() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()

	var op overlapped.Op[string]
	var ready [1]socknotify.Notification[string]
	if err := overlapped.WriteAt(port, file, "written", []byte("one two three"), 0, &op); err != nil {
		log.Fatal(err)
	}
	if _, err := port.Process(nil, ready[:], -1); err != nil {
		log.Fatal(err)
	}
	fmt.Println(ready[0].Key, ready[0].Data)
	buffer := make([]byte, 3)
	if err := overlapped.ReadAt(port, file, "read", buffer, 4, &op); err != nil {
		log.Fatal(err)
	}
	if _, err := port.Process(nil, ready[:], -1); err != nil {
		log.Fatal(err)
	}
	fmt.Println(ready[0].Key, string(buffer))
	// Output:
	// written 13
	// read two
}

// The notification of a completion leads to the operation.
func ExampleOf() {
	port, a, b := batchable()
	defer port.Close()
	defer a.Close()
	defer b.Close()
	var op overlapped.Op[string]
	if err := overlapped.Send(port, a, "a", []byte("hello"), &op); err != nil {
		log.Fatal(err)
	}
	ready := make([]socknotify.Notification[string], 1)
	if _, err := port.Wait(context.Background(), ready); err != nil {
		log.Fatal(err)
	}
	fmt.Println(ready[0].Kind(), ready[0].Key, overlapped.Of(&ready[0]) == &op)
	// Output: completed a true
}

func ExampleSend() {
	port, a, b := batchable()
	defer port.Close()
	defer a.Close()
	defer b.Close()
	var op overlapped.Op[string]
	if err := overlapped.Send(port, a, "a", []byte("hello"), &op); err != nil {
		log.Fatal(err)
	}
	ready := make([]socknotify.Notification[string], 1)
	if _, err := port.Process(nil, ready, time.Minute); err != nil {
		log.Fatal(err)
	}
	n, err := op.Result()
	fmt.Println(n, err)
	// Output: 5 <nil>
}

func ExampleSendTo() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	s, err := sock.ListenUDP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	var op overlapped.Op[string]
	if err := overlapped.SendTo(port, s, "s", []byte("to itself"), s.LocalAddr(), &op); err != nil {
		log.Fatal(err)
	}
	ready := make([]socknotify.Notification[string], 1)
	if _, err := port.Process(nil, ready, time.Minute); err != nil {
		log.Fatal(err)
	}
	fmt.Println(op.Result())
	// Output: 9 <nil>
}

func ExampleWriteAt() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	file, err := os.CreateTemp("", "written")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	var op overlapped.Op[string]
	if err := overlapped.WriteAt(port, file, "file", []byte("hello"), 0, &op); err != nil {
		log.Fatal(err)
	}
	ready := make([]socknotify.Notification[string], 1)
	if _, err := port.Process(nil, ready, time.Minute); err != nil {
		log.Fatal(err)
	}
	fmt.Println(op.Result())
	// Output: 5 <nil>
}
