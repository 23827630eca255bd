package socknotify_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/sock"
)

// registered makes a port, and a datagram socket that is registered with it and has something to receive.
func registered(filter socknotify.Events) (*socknotify.Port[string], *sock.Socket) {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	s := datagramToSelf()
	regs := []socknotify.Registration[string]{
		socknotify.EnableSock(s, "dns", filter, socknotify.TriggerLevel|socknotify.TriggerOneShot),
	}
	if _, err := port.Process(regs, nil, 0); err != nil || regs[0].Result != nil {
		log.Fatal(err, regs[0].Result)
	}
	return port, s
}

// A handle is registered, in the call that waits for it.
func ExampleEnable() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	s := datagramToSelf()
	defer s.Close()

	regs := []socknotify.Registration[string]{
		socknotify.Enable(s.Handle(), "dns", socknotify.EventIn, socknotify.TriggerLevel|socknotify.TriggerOneShot),
	}
	ready := make([]socknotify.Notification[string], 8)
	n, err := port.Process(regs, ready, time.Minute)
	fmt.Println(n, ready[0].Key, ready[0].Events, err, regs[0].Result)
	// Output: 1 dns IN <nil> <nil>
}

// A socket of package sock rather than its handle: it cannot be mistaken for another one that has its number
// later, and tells when it was drained.
func ExampleEnableSock() {
	port, err := socknotify.New[*sock.Socket]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	s := datagramToSelf()
	defer s.Close()

	regs := []socknotify.Registration[*sock.Socket]{
		socknotify.EnableSock(s, s, socknotify.EventIn, socknotify.TriggerLevel|socknotify.TriggerOneShot),
	}
	ready := make([]socknotify.Notification[*sock.Socket], 8)
	if _, err := port.Process(regs, ready, time.Minute); err != nil || regs[0].Result != nil {
		log.Fatal(err, regs[0].Result)
	}
	buf := make([]byte, 16)
	n, _, err := ready[0].Key.RecvFrom(buf)
	fmt.Printf("%s %v\n", buf[:n], err)
	_, _, err = ready[0].Key.RecvFrom(buf)
	fmt.Println(err)

	// It would block, so on kernels with edges it costs no system call to enable it again.
	_, err = port.Process(regs, ready, 0)
	fmt.Println(err)
	// Output:
	// hello <nil>
	// sock: operation would block
	// socknotify: wait timed out
}

// While it is disabled nothing comes, and the key and the place are kept.
func ExampleDisable() {
	port, s := registered(socknotify.EventIn)
	defer port.Close()
	defer s.Close()

	regs := []socknotify.Registration[string]{socknotify.Disable[string](s.Handle())}
	ready := make([]socknotify.Notification[string], 8)
	port.Process(regs, nil, 0)
	port.Wait(ready, 0) // what was queued before may still come
	_, err := port.Wait(ready, 0)
	fmt.Println(err, port.Stats().Registrations)
	// Output: socknotify: wait timed out 1
}

func ExampleDisableSock() {
	port, s := registered(socknotify.EventOut)
	defer port.Close()
	defer s.Close()

	regs := []socknotify.Registration[string]{socknotify.DisableSock[string](s)}
	port.Process(regs, nil, 0)
	fmt.Println(regs[0].Result, debug.TakeSnapshot(port, 0, 1).Registrations[0].State)
	// Output: <nil> disabled
}

// The removal is notified of, once and last, so that whoever dequeues it may free what the key stands for.
func ExampleRemove() {
	port, s := registered(socknotify.EventIn)
	defer port.Close()
	defer s.Close()

	regs := []socknotify.Registration[string]{socknotify.Remove[string](s.Handle())}
	ready := make([]socknotify.Notification[string], 8)
	n, err := port.Process(regs, ready, time.Minute)
	fmt.Println(n, ready[0].Key, ready[0].Events, err)

	port.Process(regs, nil, 0)
	fmt.Println(regs[0].Result != nil)
	// Output:
	// 1 dns REMOVE <nil>
	// true
}

func ExampleRemoveSock() {
	port, s := registered(socknotify.EventIn)
	defer port.Close()
	defer s.Close()

	regs := []socknotify.Registration[string]{socknotify.RemoveSock[string](s)}
	ready := make([]socknotify.Notification[string], 8)
	n, err := port.Process(regs, ready, time.Minute)
	fmt.Println(n, ready[0].Key, ready[0].Events, err)
	// Output: 1 dns REMOVE <nil>
}

// The last word about a socket, for the goroutine that asks for it, whoever waits besides.
func ExamplePort_RemoveWait() {
	port, s := registered(socknotify.EventIn)
	defer port.Close()
	defer s.Close()

	last, err := port.RemoveWait(context.Background(), s.Handle())
	fmt.Println(last.Key, last.Events, err)
	// Output: dns REMOVE <nil>
}

func ExamplePort_RemoveWaitSock() {
	port, s := registered(socknotify.EventIn)
	defer port.Close()

	last, err := port.RemoveWaitSock(context.Background(), s)
	fmt.Println(last.Key, last.Events, err)
	s.Close() // nobody can hear of it any more
	// Output: dns REMOVE <nil>
}
