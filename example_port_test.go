package socknotify_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// A port, something to dequeue, and its end.
func ExampleNew() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	port.Post("hello", 1)
	ready := make([]socknotify.Notification[string], 8)
	n, err := port.Process(nil, ready, time.Second)
	fmt.Println(n, ready[0].Key, err)

	port.Close()
	_, err = port.Process(nil, ready, time.Second)
	fmt.Println(err)
	// Output:
	// 1 hello <nil>
	// socknotify: port is closed
}

// The kernels of this system, and that the first is the default.
func ExampleBackends() {
	works := 0
	for _, name := range socknotify.Backends() {
		port, err := socknotify.New[int](socknotify.WithBackend(name))
		if err != nil {
			log.Fatal(err)
		}
		works++
		port.Close()
	}
	fmt.Println(works == len(socknotify.Backends()))
	// Output: true
}

func ExampleWithBackend() {
	names := socknotify.Backends()
	port, err := socknotify.New[int](socknotify.WithBackend(names[len(names)-1]))
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	fmt.Println(slices.Index(names, port.Backend()) == len(names)-1)

	_, err = socknotify.New[int](socknotify.WithBackend("abacus"))
	fmt.Println(err != nil)
	// Output:
	// true
	// true
}

// A test that finds a program that relies on an edge which Windows would not report: what was there already as
// the socket was registered.
func ExampleWithStrictEdge() {
	port, err := socknotify.New[string](socknotify.WithStrictEdge())
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	s := datagramToSelf()
	defer s.Close()

	regs := []socknotify.Registration[string]{socknotify.Enable(s, "dns", socknotify.EventIn, socknotify.TriggerEdge)}
	ready := make([]socknotify.Notification[string], 1)
	_, err = port.Process(regs, ready, 0)
	fmt.Println(err)

	buf := make([]byte, 16)
	for err = nil; err == nil; { // drained, and the next datagram is an edge
		_, _, err = s.RecvFrom(buf)
	}
	s.SendTo([]byte("again"), s.LocalAddr())
	_, err = port.Process(nil, ready, time.Minute)
	fmt.Println(ready[0].Key, ready[0].Events, err)
	// Output:
	// socknotify: wait timed out
	// dns IN <nil>
}

// datagramToSelf is a datagram socket that has something to receive.
func datagramToSelf() *sock.Socket {
	s, err := sock.ListenUDP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.SendTo([]byte("hello"), s.LocalAddr()); err != nil {
		log.Fatal(err)
	}
	// On some systems it takes a moment to come.
	port, err := socknotify.New[int]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	regs := []socknotify.Registration[int]{
		socknotify.Enable(s, 0, socknotify.EventIn, socknotify.TriggerLevel|socknotify.TriggerOneShot),
	}
	if _, err := port.Process(regs, make([]socknotify.Notification[int], 1), time.Minute); err != nil {
		log.Fatal(err)
	}
	if _, err := port.Deregister(socknotify.Remove[int](s)); err != nil {
		log.Fatal(err)
	}
	return s
}

// What is registered stays registered, though nothing came in time.
func ExamplePort_ProcessContext() {
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
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()

	regs := []socknotify.Registration[string]{
		socknotify.Enable(s, "dns", socknotify.EventIn, socknotify.TriggerLevel|socknotify.TriggerOneShot),
	}
	ready := make([]socknotify.Notification[string], 1)
	_, err = port.ProcessContext(ctx, regs, ready)
	fmt.Println(err, regs[0].Result, port.Stats().Registrations)
	// Output: context deadline exceeded <nil> 1
}

// A worker that ends when its program does.
func ExamplePort_Wait() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	ctx, stop := context.WithCancelCause(context.Background())
	ended := make(chan error)
	go func() {
		ready := make([]socknotify.Notification[string], 8)
		for {
			n, err := port.Wait(ctx, ready)
			if err != nil {
				ended <- err
				return
			}
			for _, nt := range ready[:n] {
				fmt.Println("handled", nt.Key)
				stop(errors.New("that will do"))
			}
		}
	}()
	port.Post("job", 0)
	fmt.Println(<-ended)
	// Output:
	// handled job
	// that will do
}

func ExamplePort_Stats() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	for i := range 3 {
		port.Post("job", uintptr(i))
	}
	ready := make([]socknotify.Notification[string], 2)
	port.Process(nil, ready, time.Second)
	stats := port.Stats()
	fmt.Println(stats.Posts, stats.PostsDequeued, stats.Queued, stats.Waiting)
	// Output: 3 2 1 0
}
