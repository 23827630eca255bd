package socknotify_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// batchable makes a port, and two connected sockets.
func batchable() (*socknotify.Port[string], *sock.Socket, *sock.Socket) {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	a, b, err := socknotify.SockPair()
	if err != nil {
		log.Fatal(err)
	}
	return port, a, b
}

// An echo loop: what the completions of one call lead to is started in the next.
func ExamplePort_ProcessOperations() {
	port, err := socknotify.New[*echoer]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	var clients []*sock.Socket
	var ops []socknotify.Operation[*echoer]
	for range 3 {
		server, client, err := socknotify.SockPair()
		if err != nil {
			log.Fatal(err)
		}
		defer server.Close()
		defer client.Close()
		clients = append(clients, client)
		c := &echoer{socket: server, buf: make([]byte, 64)}
		ops = append(ops, socknotify.RecvOp(c.socket, c, c.buf, &c.recv))
		if _, err := client.Send([]byte("hello")); err != nil {
			log.Fatal(err)
		}
	}
	entries := make([]socknotify.Notification[*echoer], 64)
	for echoed := 0; echoed < len(clients); {
		n, err := port.ProcessOperations(ops, entries, time.Minute)
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
			received, err := entry.Completed().Result()
			switch {
			case err != nil:
				log.Fatal(err)
			case entry.Completed() == &c.recv:
				ops = append(ops, socknotify.SendOp(c.socket, c, c.buf[:received], &c.send))
			default:
				echoed++
				ops = append(ops, socknotify.RecvOp(c.socket, c, c.buf, &c.recv))
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
func ExamplePort_ProcessOperationsContext() {
	port, a, b := batchable()
	defer port.Close()
	defer a.Close()
	defer b.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var send, recv socknotify.Overlapped[string]
	buffer := make([]byte, 16)
	ops := []socknotify.Operation[string]{
		socknotify.SendOp(a, "sent", []byte("hello"), &send),
		socknotify.RecvOp(b, "received", buffer, &recv),
	}
	entries := make([]socknotify.Notification[string], 2)
	for done := 0; done < 2; ops = nil {
		n, err := port.ProcessOperationsContext(ctx, ops, entries[done:])
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
func ExampleRecvOp() {
	port, a, b := batchable()
	defer port.Close()
	defer a.Close()
	defer b.Close()
	var recv, send socknotify.Overlapped[string]
	buffer := make([]byte, 16)
	ops := []socknotify.Operation[string]{
		socknotify.RecvOp(a, "in", buffer, &recv),
		socknotify.SendOp(b, "out", []byte("hello"), &send),
		socknotify.SendOp(b, "again", []byte("hello"), &send),
	}
	if _, err := port.ProcessOperations(ops, nil, 0); err != nil {
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

// What was sent is carried out, though nobody waits.
func ExampleSendOp() {
	port, a, b := batchable()
	defer port.Close()
	defer a.Close()
	defer b.Close()
	var send socknotify.Overlapped[string]
	ops := []socknotify.Operation[string]{socknotify.SendOp(a, "out", []byte("hello"), &send)}
	if _, err := port.ProcessOperations(ops, nil, 0); err != nil || ops[0].Result != nil {
		log.Fatal(err, ops[0].Result)
	}
	buffer := make([]byte, 16)
	n, err := b.Recv(buffer)
	fmt.Println(string(buffer[:n]), err)
	// Output: hello <nil>
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
func ExampleSendToOp() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	ends := datagramSockets()
	defer ends[0].Close()
	defer ends[1].Close()
	var in, out socknotify.Overlapped[string]
	buffer := make([]byte, 1500)
	ops := []socknotify.Operation[string]{
		socknotify.SendToOp(ends[1], "out", []byte("a datagram"), ends[0].LocalAddr(), &out),
		socknotify.RecvFromOp(ends[0], "in", buffer, &in),
	}
	entries := make([]socknotify.Notification[string], 2)
	for done := 0; done < 2; ops = nil {
		n, err := port.ProcessOperations(ops, entries[done:], time.Minute)
		if err != nil {
			log.Fatal(err)
		}
		done += n
	}
	n, err := in.Result()
	fmt.Println(string(buffer[:n]), err, in.Addr() == ends[1].LocalAddr())
	// Output: a datagram <nil> true
}

// Receives of many senders' datagrams can be started by one batch.
func ExampleRecvFromOp() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	ends := datagramSockets()
	defer ends[0].Close()
	defer ends[1].Close()
	var in [2]socknotify.Overlapped[string]
	var buffers [2][1500]byte
	ops := []socknotify.Operation[string]{
		socknotify.RecvFromOp(ends[0], "first", buffers[0][:], &in[0]),
		socknotify.RecvFromOp(ends[0], "second", buffers[1][:], &in[1]),
	}
	if _, err := port.ProcessOperations(ops, nil, 0); err != nil || ops[0].Result != nil || ops[1].Result != nil {
		log.Fatal(err, ops[0].Result, ops[1].Result)
	}
	for _, text := range []string{"one", "two"} {
		if err := ends[1].SendTo([]byte(text), ends[0].LocalAddr()); err != nil {
			log.Fatal(err)
		}
	}
	entries := make([]socknotify.Notification[string], 1)
	for i := range in {
		if _, err := port.Wait(entries, time.Minute); err != nil {
			log.Fatal(err)
		}
		fmt.Println(entries[0].Key, string(buffers[i][:entries[0].Data]))
	}
	// Output:
	// first one
	// second two
}

// A connect, and what is to be sent then.
func ExampleConnectOp() {
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
	var connect, send socknotify.Overlapped[string]
	ops := []socknotify.Operation[string]{
		socknotify.ConnectOp(s, "connected", listener.LocalAddr(), &connect),
		socknotify.SendOp(s, "sent", []byte("hello"), &send),
	}
	entries := make([]socknotify.Notification[string], 1)
	for range 2 {
		if _, err := port.ProcessOperations(ops, entries, time.Minute); err != nil {
			log.Fatal(err)
		}
		ops = nil
		_, err := entries[0].Completed().Result()
		fmt.Println(entries[0].Key, err)
	}
	// Output:
	// connected <nil>
	// sent <nil>
}

// A receive that waits without a buffer.
func ExamplePort_RecvPooled() {
	port, a, b := batchable()
	defer port.Close()
	defer a.Close()
	defer b.Close()
	pool := socknotify.NewBuffers(4096)
	var recv socknotify.Overlapped[string]
	if err := port.RecvPooled(a, "in", pool, &recv); err != nil {
		log.Fatal(err)
	}
	if _, err := b.Send([]byte("hello")); err != nil {
		log.Fatal(err)
	}
	var entries [1]socknotify.Notification[string]
	if _, err := port.Wait(entries[:], time.Minute); err != nil {
		log.Fatal(err)
	}
	_, err := recv.Result()
	fmt.Println(string(recv.Buffer()), err)
	pool.Put(recv.Buffer())
	// Output: hello <nil>
}

// Many receives wait, and share a few buffers.
func ExampleRecvPooledOp() {
	port, a, b := batchable()
	defer port.Close()
	defer a.Close()
	defer b.Close()
	pool := socknotify.NewBuffers(4)
	var recvs [3]socknotify.Overlapped[string]
	var ops []socknotify.Operation[string]
	for i := range recvs {
		ops = append(ops, socknotify.RecvPooledOp(a, "in", pool, &recvs[i]))
	}
	if _, err := port.ProcessOperations(ops, nil, 0); err != nil {
		log.Fatal(err)
	}
	if _, err := b.Send([]byte("one two ")); err != nil {
		log.Fatal(err)
	}
	var entries [1]socknotify.Notification[string]
	for range 2 {
		if _, err := port.Wait(entries[:], time.Minute); err != nil {
			log.Fatal(err)
		}
		o := entries[0].Completed()
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
	pool := socknotify.NewBuffers(8)
	pool.Put(make([]byte, 8))
	if _, err := b.Send([]byte("a datagram's worth")); err != nil {
		log.Fatal(err)
	}
	var recv socknotify.Overlapped[string]
	if err := port.RecvPooled(a, "in", pool, &recv); err != nil {
		log.Fatal(err)
	}
	var entries [1]socknotify.Notification[string]
	if _, err := port.Wait(entries[:], time.Minute); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n", recv.Buffer())
	pool.Put(recv.Buffer())
	// Output: "a datagr"
}
