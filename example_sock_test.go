package socknotify_test

import (
	"fmt"
	"log"
	"net"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// A server on package sock: connections arrive on the port like everything else, and a socket that has been
// drained is enabled again without a system call.
func ExamplePort_Accept() {
	const oneShot = socknotify.TriggerLevel | socknotify.TriggerOneShot
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
	if err := port.Accept(listener, nil, 16); err != nil {
		log.Fatal(err)
	}

	client, err := net.Dial("tcp", listener.LocalAddr().String())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(client, "hello")

	ready, buf := make([]socknotify.Notification[*sock.Socket], 16), make([]byte, 4096)
	var regs []socknotify.Registration[*sock.Socket]
	for open := true; open; {
		n, err := port.Process(regs, ready, -1)
		if err != nil {
			log.Fatal(err)
		}
		regs = regs[:0]
		for _, nt := range ready[:n] {
			if nt.Key == nil { // the listener's
				s, err := nt.Accepted()
				if err != nil {
					log.Fatal(err)
				}
				regs = append(regs, socknotify.Enable(s, s, socknotify.EventIn, oneShot))
				continue
			}
			s := nt.Key
			switch n, err := s.Recv(buf); err {
			case nil:
				fmt.Printf("%s\n", buf[:n])
				client.Close()
				fallthrough
			case sock.ErrWouldBlock:
				regs = append(regs, socknotify.Enable(s, s, socknotify.EventIn, oneShot))
			default:
				fmt.Println(err)
				s.Close() // ends its registration too
				open = false
			}
		}
	}
	// Output:
	// hello
	// EOF
}
