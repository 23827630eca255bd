package overlapped_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/overlapped"
	"github.com/socknotify/socknotify/sock"
)

// batchable makes a port, and two connected sockets.
func batchable() (*socknotify.Port[string], *sock.Socket, *sock.Socket) {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	a, b, err := backendtest.Pair()
	if err != nil {
		log.Fatal(err)
	}
	return port, a, b
}

// An echo loop: what the completions of one call lead to is started in the next.
func ExampleProcess() {
	port, err := socknotify.New[*echoer]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	var clients []*sock.Socket
	var ops []overlapped.Request[*echoer]
	for range 3 {
		server, client, err := backendtest.Pair()
		if err != nil {
			log.Fatal(err)
		}
		defer server.Close()
		defer client.Close()
		clients = append(clients, client)
		c := &echoer{socket: server, buf: make([]byte, 64)}
		ops = append(ops, overlapped.RecvRequest(c.socket, c, c.buf, &c.recv))
		if _, err := client.Send([]byte("hello")); err != nil {
			log.Fatal(err)
		}
	}
	entries := make([]socknotify.Notification[*echoer], 64)
	for echoed := 0; echoed < len(clients); {
		n, err := overlapped.Process(port, ops, entries, time.Minute)
		if err != nil {
			log.Fatal(err)
		}
		for i := range ops {
			if ops[i].Result != nil {
				log.Fatal(ops[i].Result)
			}
		}
		ops = ops[:0]
		for _, entry := range entries[:n] {
			c := entry.Key
			received, err := overlapped.Of(&entry).Result()
			switch {
			case err != nil:
				log.Fatal(err)
			case overlapped.Of(&entry) == &c.recv:
				ops = append(ops, overlapped.SendRequest(c.socket, c, c.buf[:received], &c.send))
			default:
				echoed++
				ops = append(ops, overlapped.RecvRequest(c.socket, c, c.buf, &c.recv))
			}
		}
	}
	for _, client := range clients {
		var b [64]byte
		n, err := client.Recv(b[:])
		fmt.Println(string(b[:n]), err)
	}
	// Output:
	// hello <nil>
	// hello <nil>
	// hello <nil>
}

// A batch of operations, and what comes of them until a context is done.
func ExampleProcessContext() {
	port, a, b := batchable()
	defer port.Close()
	defer a.Close()
	defer b.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var send, recv overlapped.Op[string]
	buffer := make([]byte, 16)
	ops := []overlapped.Request[string]{
		overlapped.SendRequest(a, "sent", []byte("hello"), &send),
		overlapped.RecvRequest(b, "received", buffer, &recv),
	}
	entries := make([]socknotify.Notification[string], 2)
	for done := 0; done < 2; ops = nil {
		n, err := overlapped.ProcessContext(ctx, port, ops, entries[done:])
		if err != nil {
			log.Fatal(err)
		}
		done += n
	}
	n, err := recv.Result()
	fmt.Println(string(buffer[:n]), err)
	// Output: hello <nil>
}

// A receive and a send that are started together.
func ExampleRecvRequest() {
	port, a, b := batchable()
	defer port.Close()
	defer a.Close()
	defer b.Close()
	var recv, send overlapped.Op[string]
	buffer := make([]byte, 16)
	ops := []overlapped.Request[string]{
		overlapped.RecvRequest(a, "in", buffer, &recv),
		overlapped.SendRequest(b, "out", []byte("hello"), &send),
		overlapped.SendRequest(b, "again", []byte("hello"), &send),
	}
	if _, err := overlapped.Process(port, ops, nil, 0); err != nil {
		log.Fatal(err)
	}
	for i := range ops {
		fmt.Println(ops[i].Result)
	}
	// Output:
	// <nil>
	// <nil>
	// socknotify: Send: invalid argument: the Overlapped is in flight
}

// datagramSockets makes two that are bound.
func datagramSockets() (ends [2]*sock.Socket) {
	for i := range ends {
		var err error
		if ends[i], err = sock.New(sock.UDP4); err != nil {
			log.Fatal(err)
		}
		if err := ends[i].Bind(sock.Loopback); err != nil {
			log.Fatal(err)
		}
	}
	return ends
}

// A datagram is sent, and received with its sender, by one batch.
func ExampleSendToRequest() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	ends := datagramSockets()
	defer ends[0].Close()
	defer ends[1].Close()
	var in, out overlapped.Op[string]
	buffer := make([]byte, 1500)
	ops := []overlapped.Request[string]{
		overlapped.SendToRequest(ends[1], "out", []byte("a datagram"), ends[0].LocalAddr(), &out),
		overlapped.RecvFromRequest(ends[0], "in", buffer, &in),
	}
	entries := make([]socknotify.Notification[string], 2)
	for done := 0; done < 2; ops = nil {
		n, err := overlapped.Process(port, ops, entries[done:], time.Minute)
		if err != nil {
			log.Fatal(err)
		}
		done += n
	}
	n, err := in.Result()
	fmt.Println(string(buffer[:n]), err, in.Addr() == ends[1].LocalAddr())
	// Output: a datagram <nil> true
}

// A connect, and what is to be sent then.
func ExampleConnectRequest() {
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
	var connect, send overlapped.Op[string]
	ops := []overlapped.Request[string]{
		overlapped.ConnectRequest(s, "connected", listener.LocalAddr(), &connect),
		overlapped.SendRequest(s, "sent", []byte("hello"), &send),
	}
	entries := make([]socknotify.Notification[string], 1)
	for range 2 {
		if _, err := overlapped.Process(port, ops, entries, time.Minute); err != nil {
			log.Fatal(err)
		}
		ops = nil
		_, err := overlapped.Of(&entries[0]).Result()
		fmt.Println(entries[0].Key, err)
	}
	// Output:
	// connected <nil>
	// sent <nil>
}

// A receive that waits without a buffer.
func ExampleRecvPooled() {
	port, a, b := batchable()
	defer port.Close()
	defer a.Close()
	defer b.Close()
	pool := overlapped.NewBuffers(4096)
	var recv overlapped.Op[string]
	if err := overlapped.RecvPooled(port, a, "in", pool, &recv); err != nil {
		log.Fatal(err)
	}
	if _, err := b.Send([]byte("hello")); err != nil {
		log.Fatal(err)
	}
	var entries [1]socknotify.Notification[string]
	if _, err := port.Process(nil, entries[:], time.Minute); err != nil {
		log.Fatal(err)
	}
	_, err := recv.Result()
	fmt.Println(string(recv.Buffer()), err)
	pool.Put(recv.Buffer())
	// Output: hello <nil>
}

// Many receives wait, and share a few buffers.
func ExampleRecvPooledRequest() {
	port, a, b := batchable()
	defer port.Close()
	defer a.Close()
	defer b.Close()
	pool := overlapped.NewBuffers(4)
	var recvs [3]overlapped.Op[string]
	var ops []overlapped.Request[string]
	for i := range recvs {
		ops = append(ops, overlapped.RecvPooledRequest(a, "in", pool, &recvs[i]))
	}
	if _, err := overlapped.Process(port, ops, nil, 0); err != nil {
		log.Fatal(err)
	}
	if _, err := b.Send([]byte("one two ")); err != nil {
		log.Fatal(err)
	}
	var entries [1]socknotify.Notification[string]
	for range 2 {
		if _, err := port.Process(nil, entries[:], time.Minute); err != nil {
			log.Fatal(err)
		}
		o := overlapped.Of(&entries[0])
		fmt.Printf("%q\n", o.Buffer())
		pool.Put(o.Buffer())
	}
	// Output:
	// "one "
	// "two "
}

// A pool may be put buffers into that others have made.
func ExampleNewBuffers() {
	port, a, b := batchable()
	defer port.Close()
	defer a.Close()
	defer b.Close()
	pool := overlapped.NewBuffers(8)
	pool.Put(make([]byte, 8))
	if _, err := b.Send([]byte("a datagram's worth")); err != nil {
		log.Fatal(err)
	}
	var recv overlapped.Op[string]
	if err := overlapped.RecvPooled(port, a, "in", pool, &recv); err != nil {
		log.Fatal(err)
	}
	var entries [1]socknotify.Notification[string]
	if _, err := port.Process(nil, entries[:], time.Minute); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n", recv.Buffer())
	pool.Put(recv.Buffer())
	// Output: "a datagr"
}
