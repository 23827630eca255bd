package socknotify_test

import (
	"fmt"
	"io"
	"log"

	sn "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// An echoer is what a server has for each connection: its buffer, and an Overlapped for each direction.
type echoer struct {
	socket     *sock.Socket
	buf        []byte
	recv, send sn.Overlapped[*echoer]
}

// Receives and sends that complete on the port: each completion starts the connection's next operation.
func ExamplePort_Recv_echo() {
	port, err := sn.New[*echoer]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	s, client, err := sn.SockPair()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	c := &echoer{socket: s, buf: make([]byte, 64)}
	err = port.Recv(c.socket, c, c.buf, &c.recv) // completes with key c; c.recv is an Overlapped
	if err != nil {
		log.Fatal(err)
	}
	client.Send([]byte("hello"))
	client.Shutdown(sock.ShutWrite)

	for {
		var one [1]sn.Notification[*echoer]
		if _, err := port.Wait(one[:], -1); err != nil {
			log.Fatal(err)
		}
		c := one[0].Key
		n, err := one[0].Completed().Result()
		switch {
		case err == io.EOF:
			fmt.Println("the client is done")
			c.socket.Close()
			return
		case err != nil:
			log.Fatal(err)
		case one[0].Completed() == &c.recv:
			fmt.Printf("received %q\n", c.buf[:n])
			err = port.Send(c.socket, c, c.buf[:n], &c.send)
		default:
			fmt.Println("sent", n)
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
