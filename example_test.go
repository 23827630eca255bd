package socknotify_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"time"

	"github.com/socknotify/socknotify"
)

// A server of one connection, written with the standard library's connections: register in the call
// that dequeues, receive once per notification, remove on hang-up, and be done at EventRemove.
func ExamplePort_Process() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	conn, err := listener.Accept()
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(client, "hello")
	client.Close()

	port, err := socknotify.New[net.Conn]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()

	regs := []socknotify.Registration[net.Conn]{{
		Conn:    conn.(*net.TCPConn),
		Key:     conn,
		Filter:  socknotify.EventIn | socknotify.EventHangup,
		Op:      socknotify.OpEnable,
		Trigger: socknotify.TriggerLevel | socknotify.TriggerOneShot,
	}}
	ready := make([]socknotify.Notification[net.Conn], 8)
	buffer := make([]byte, 512)
	for {
		n, err := port.Process(regs, ready, 10*time.Second)
		if err != nil {
			log.Fatal(err)
		}
		if err := regs[0].Result; err != nil {
			log.Fatal(err)
		}
		for _, nt := range ready[:n] {
			if nt.Events.Has(socknotify.EventRemove) {
				fmt.Println("removed")
				return
			}
			// Readiness was notified, so this does not block.
			if n, _ := nt.Key.Read(buffer); n > 0 {
				fmt.Printf("received %s\n", buffer[:n])
			} else {
				regs[0].Op = socknotify.OpRemove // end of stream
			}
		}
	}
	// Output:
	// received hello
	// removed
}

func ExamplePort_Post() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	port.Post("job", 42)
	entries := make([]socknotify.Notification[string], 1)
	if _, err := port.Process(nil, entries, time.Second); err != nil {
		log.Fatal(err)
	}
	fmt.Println(entries[0].Key, entries[0].Data, entries[0].Kind() == socknotify.KindPosted)
	// Output: job 42 true
}

func ExamplePort_All() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	for i := range 3 {
		port.Post("count", uintptr(i))
	}
	for nt := range port.All(context.Background()) {
		fmt.Println(nt.Key, nt.Data)
		if nt.Data == 2 {
			break
		}
	}
	// Output:
	// count 0
	// count 1
	// count 2
}

func ExamplePort_Deregister_conn() {
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer socket.Close()
	conn := socket.(*net.UDPConn)
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	regs := []socknotify.Registration[string]{{
		Conn: conn, Key: "dns", Filter: socknotify.EventIn, Op: socknotify.OpEnable,
		Trigger: socknotify.TriggerEdge,
	}}
	if _, err := port.Process(regs, nil, 0); err != nil || regs[0].Result != nil {
		log.Fatal(err, regs[0].Result)
	}
	key, err := port.Deregister(socknotify.Remove[string](conn))
	fmt.Println(key, err)
	_, err = port.Deregister(socknotify.Remove[string](conn))
	fmt.Println(errors.Is(err, socknotify.ErrNotRegistered))
	// Output:
	// dns <nil>
	// true
}
