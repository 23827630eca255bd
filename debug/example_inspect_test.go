package debug_test

import (
	"fmt"
	"log"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/sock"
)

// A datagram socket is registered, notified once, and inspected.
func ExampleTakeSnapshot() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	stop := debug.Observe(port)
	defer stop()

	s, err := sock.New(sock.UDP4)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	regs := []socknotify.Registration[string]{
		socknotify.Enable(s, "dns", socknotify.EventOut, socknotify.TriggerLevel|socknotify.TriggerOneShot),
	}
	entries := make([]socknotify.Notification[string], 1)
	if _, err := port.Process(regs, entries, time.Second); err != nil || regs[0].Result != nil {
		log.Fatal(err, regs[0].Result)
	}

	from := uintptr(0)
	for more := true; more; {
		page := debug.TakeSnapshot(port, from, 100)
		for _, r := range page.Registrations {
			fmt.Println(r.Key, r.Filter, r.Trigger, r.State, r.Notifications, r.Last)
		}
		from, more = page.Next, page.More
	}
	// Output: dns OUT level|one-shot fired 1 OUT
}

// The posts of a port are traced.
func ExampleStartTrace() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	trace := debug.StartTrace(port)
	defer trace.Close()

	port.Post("job", 42)
	port.Process(nil, make([]socknotify.Notification[string], 1), time.Second)

	entries := make([]debug.TraceEntry, 16)
	for _, e := range entries[:trace.Read(entries)] {
		fmt.Println(e.Kind, e.Data)
	}
	fmt.Println(trace.Lost(), "lost")
	// Output:
	// posted 42
	// 0 lost
}

// The addresses of a registered listener are read.
func ExampleAddresses() {
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
	if err := port.Accept(listener, "http", 16); err != nil {
		log.Fatal(err)
	}
	r := debug.TakeSnapshot(port, 0, 1).Registrations[0]
	names, err := debug.Addresses(port, &r)
	fmt.Println(names.Network, names.Local == listener.LocalAddr().String(), names.Listening, err)
	// Output: tcp true true <nil>
}

// Notifications are counted while the port is observed.
func ExampleObserve() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	stop := debug.Observe(port)
	fmt.Println("observed:", !debug.TakeSnapshot(port, 0, 0).Observed.IsZero())
	stop()
	fmt.Println("observed:", !debug.TakeSnapshot(port, 0, 0).Observed.IsZero())
	// Output:
	// observed: true
	// observed: false
}
