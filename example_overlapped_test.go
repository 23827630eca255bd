package socknotify_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// A connection whose operations complete on the port: a receive, the answer, and the next receive, until the
// peer has ended the stream. No readiness is asked for.
func ExamplePort_Recv() {
	port, err := socknotify.New[*sock.Socket]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	listener, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	client, err := sock.New(sock.TCP4)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	var op, next socknotify.Overlapped[*sock.Socket]
	wait := func() (n int, err error) {
		var ready [1]socknotify.Notification[*sock.Socket]
		if _, err := port.Wait(ready[:], -1); err != nil {
			log.Fatal(err)
		}
		return ready[0].Completed().Result()
	}
	if err := port.Connect(client, client, listener.LocalAddr(), &op); err != nil {
		log.Fatal(err)
	}
	if _, err := wait(); err != nil {
		log.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	buffer := make([]byte, 4096)
	if err := port.Recv(server, server, buffer, &op); err != nil {
		log.Fatal(err)
	}
	if err := port.Send(client, client, []byte("hello"), &next); err != nil {
		log.Fatal(err)
	}
	wait() // for the one
	wait() // and the other, in whatever order
	n, err := op.Result()
	fmt.Printf("%q %v\n", buffer[:n], err)

	client.Shutdown(sock.ShutWrite)
	if err := port.Recv(server, server, buffer, &op); err != nil {
		log.Fatal(err)
	}
	n, err = wait()
	fmt.Println(n, err == io.EOF)
	// Output:
	// "hello" <nil>
	// 0 true
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
