package socknotify_test

import (
	"fmt"
	"log"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// A datagram socket is registered, notified once, and looked at.
func ExamplePort_Snapshot() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	stop := port.Observe()
	defer stop()

	s, err := sock.New(sock.UDP4)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	regs := []socknotify.Registration[string]{
		socknotify.EnableSock(s, "dns", socknotify.EventOut, socknotify.TriggerLevel|socknotify.TriggerOneShot),
	}
	entries := make([]socknotify.Notification[string], 1)
	if _, err := port.Process(regs, entries, time.Second); err != nil || regs[0].Result != nil {
		log.Fatal(err, regs[0].Result)
	}

	from := socknotify.Socket(0)
	for more := true; more; {
		page := port.Snapshot(from, 100)
		for _, r := range page.Registrations {
			fmt.Println(r.Key, r.Filter, r.Trigger, r.State, r.Notifications, r.Last)
		}
		from, more = page.Next, page.More
	}
	// Output: dns OUT level|one-shot fired 1 OUT
}

// A port's posts are traced.
func ExamplePort_Trace() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	trace := port.Trace()
	defer trace.Close()

	port.Post("job", 42)
	port.Wait(make([]socknotify.Notification[string], 1), time.Second)

	entries := make([]socknotify.TraceEntry, 16)
	for _, e := range entries[:trace.Read(entries)] {
		fmt.Println(e.Kind, e.Data)
	}
	fmt.Println(trace.Lost(), "lost")
	// Output:
	// posted 42
	// 0 lost
}

// The addresses of a registered listener.
func ExamplePort_Addresses() {
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
	r := port.Snapshot(0, 1).Registrations[0]
	names, err := port.Addresses(&r)
	fmt.Println(names.Network, names.Local == listener.LocalAddr().String(), names.Listening, err)
	// Output: tcp true true <nil>
}
