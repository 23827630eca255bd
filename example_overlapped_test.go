package socknotify_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// An echoer is what a server has for each connection: its buffer, and an Overlapped for each direction.
type echoer struct {
	socket     *sock.Socket
	buf        []byte
	recv, send socknotify.Overlapped[*echoer]
}

// Receives and sends that complete on the port: each completion starts the connection's next operation.
func ExamplePort_Recv() {
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
	err = port.Recv(c.socket, c, c.buf, &c.recv) // completes with key c; c.recv is an Overlapped
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(client, "hello")

	for open := true; open; {
		var one [1]socknotify.Notification[*echoer]
		if _, err := port.Wait(one[:], -1); err != nil {
			log.Fatal(err)
		}
		c := one[0].Key
		n, err := one[0].Completed().Result()
		switch {
		case err == io.EOF:
			fmt.Println("the client is done")
			open = false
			continue
		case err != nil:
			log.Fatal(err)
		case one[0].Completed() == &c.recv:
			fmt.Printf("received %q\n", c.buf[:n])
			err = port.Send(c.socket, c, c.buf[:n], &c.send)
		default:
			fmt.Println("sent", n)
			io.ReadFull(client, make([]byte, n)) // or closing would reset
			client.Close()
			err = port.Recv(c.socket, c, c.buf, &c.recv)
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
func ExamplePort_Connect() {
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
	var op socknotify.Overlapped[string]
	if err := port.Connect(s, "client", listener.LocalAddr(), &op); err != nil {
		log.Fatal(err)
	}
	var ready [1]socknotify.Notification[string]
	if _, err := port.Wait(ready[:], -1); err != nil {
		log.Fatal(err)
	}
	_, err = ready[0].Completed().Result()
	fmt.Println(ready[0].Key, err, s.RemoteAddr() == listener.LocalAddr())
	// Output: client <nil> true
}

// Datagrams, each with its sender's address.
func ExamplePort_RecvFrom() {
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
	var in, out socknotify.Overlapped[string]
	buffer := make([]byte, 1500)
	if err := port.RecvFrom(ends[0], "in", buffer, &in); err != nil {
		log.Fatal(err)
	}
	if err := port.SendTo(ends[1], "out", []byte("a datagram"), ends[0].LocalAddr(), &out); err != nil {
		log.Fatal(err)
	}
	var ready [2]socknotify.Notification[string]
	for done := 0; done < 2; {
		n, err := port.Wait(ready[:], -1)
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
func ExamplePort_Cancel() {
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
	var op socknotify.Overlapped[string]
	if err := port.RecvFrom(s, "s", make([]byte, 1500), &op); err != nil {
		log.Fatal(err)
	}
	if err := port.Cancel(&op); err != nil {
		log.Fatal(err)
	}
	var ready [1]socknotify.Notification[string]
	if _, err := port.Wait(ready[:], -1); err != nil {
		log.Fatal(err)
	}
	_, err = ready[0].Completed().Result()
	fmt.Println(ready[0].Key, errors.Is(err, socknotify.ErrCanceled))
	// Output: s true
}

// A file is written and read beside the sockets.
func ExamplePort_ReadAt() {
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

	var op socknotify.Overlapped[string]
	var ready [1]socknotify.Notification[string]
	if err := port.WriteAt(file, "written", []byte("one two three"), 0, &op); err != nil {
		log.Fatal(err)
	}
	if _, err := port.Wait(ready[:], -1); err != nil {
		log.Fatal(err)
	}
	fmt.Println(ready[0].Key, ready[0].Data)
	buffer := make([]byte, 3)
	if err := port.ReadAt(file, "read", buffer, 4, &op); err != nil {
		log.Fatal(err)
	}
	if _, err := port.Wait(ready[:], -1); err != nil {
		log.Fatal(err)
	}
	fmt.Println(ready[0].Key, string(buffer))
	// Output:
	// written 13
	// read two
}
