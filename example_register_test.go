package socknotify_test

import (
	"fmt"
	"log"
	"time"

	"github.com/socknotify/socknotify"
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
		socknotify.Enable(s, "dns", filter, socknotify.TriggerLevel|socknotify.TriggerOneShot),
	}
	if _, err := port.Process(regs, nil, 0); err != nil || regs[0].Result != nil {
		log.Fatal(err, regs[0].Result)
	}
	return port, s
}

// A raw handle is registered, in the call that waits for it.
func ExampleRegistration_handle() {
	port, err := socknotify.New[string]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	s := datagramToSelf()
	defer s.Close()

	regs := []socknotify.Registration[string]{
		{
			Handle: s.Handle(), Key: "dns", Filter: socknotify.EventIn, Op: socknotify.OpEnable,
			Trigger: socknotify.TriggerLevel | socknotify.TriggerOneShot,
		},
	}
	ready := make([]socknotify.Notification[string], 8)
	n, err := port.Process(regs, ready, time.Minute)
	fmt.Println(n, ready[0].Key, ready[0].Events, err, regs[0].Result)
	// Output: 1 dns IN <nil> <nil>
}

// A socket is registered and served. It knows when it has been drained.
func ExampleEnable() {
	port, err := socknotify.New[*sock.Socket]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	s := datagramToSelf()
	defer s.Close()

	regs := []socknotify.Registration[*sock.Socket]{
		socknotify.Enable(s, s, socknotify.EventIn, socknotify.TriggerLevel|socknotify.TriggerOneShot),
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

	regs := []socknotify.Registration[string]{socknotify.Disable[string](s)}
	ready := make([]socknotify.Notification[string], 8)
	port.Process(regs, nil, 0)
	port.Process(nil, ready, 0) // what was queued before may still come
	_, err := port.Process(nil, ready, 0)
	fmt.Println(err, port.Stats().Registrations)
	// Output: socknotify: wait timed out 1
}

// The EventRemove comes once and last. The goroutine that dequeues it may free what the key stands for.
func ExampleRemove() {
	port, s := registered(socknotify.EventIn)
	defer port.Close()
	defer s.Close()

	regs := []socknotify.Registration[string]{socknotify.Remove[string](s)}
	ready := make([]socknotify.Notification[string], 8)
	n, err := port.Process(regs, ready, time.Minute)
	fmt.Println(n, ready[0].Key, ready[0].Events, err)

	port.Process(regs, nil, 0)
	fmt.Println(regs[0].Result != nil)
	// Output:
	// 1 dns REMOVE <nil>
	// true
}

// Deregister removes without an EventRemove: nothing more is dequeued for the key when it returns.
func ExamplePort_Deregister() {
	port, s := registered(socknotify.EventIn)
	defer port.Close()

	key, err := port.Deregister(socknotify.Remove[string](s))
	fmt.Println(key, err)
	s.Close()
	// Output: dns <nil>
}
