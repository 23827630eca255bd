package sock_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// await waits until a socket can receive or accept (EventIn), or send (EventOut).
func await(s *sock.Socket, what socknotify.Events) {
	port, err := socknotify.New[int]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	regs := []socknotify.Registration[int]{
		socknotify.Enable(s, 0, what, socknotify.TriggerLevel|socknotify.TriggerOneShot),
	}
	if _, err := port.Process(regs, make([]socknotify.Notification[int], 1), time.Minute); err != nil || regs[0].Result != nil {
		log.Fatal(err, regs[0].Result)
	}
}

// accepted waits for a connection and accepts it.
func accepted(listener *sock.Socket) *sock.Socket {
	await(listener, socknotify.EventIn)
	s, err := listener.Accept()
	if err != nil {
		log.Fatal(err)
	}
	return s
}

// connected returns both ends of a connection, as a Socket and as a net.Conn.
func connected() (*sock.Socket, net.Conn) {
	listener, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.LocalAddr().String())
	if err != nil {
		log.Fatal(err)
	}
	return accepted(listener), client
}

// A TCP socket is created, configured, and connected.
func ExampleNew() {
	listener, err := sock.New(sock.TCP4)
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	if err := errors.Join(listener.Bind(sock.Loopback), listener.Listen(16)); err != nil {
		log.Fatal(err)
	}

	client, err := sock.New(sock.TCP4)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = client.Connect(listener.LocalAddr())
	if err == sock.ErrWouldBlock { // in progress
		await(client, socknotify.EventOut)
		err = client.Err()
	}
	if err != nil {
		log.Fatal(err)
	}
	server := accepted(listener)
	defer server.Close()
	fmt.Println(server.RemoteAddr() == client.LocalAddr())
	// Output: true
}

func ExampleListenTCP() {
	listener, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{Backlog: 64})
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.LocalAddr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	var s sock.Socket // provided by the program, so that accepting does not allocate
	await(listener, socknotify.EventIn)
	fmt.Println(listener.AcceptInto(&s), s.LocalAddr() == listener.LocalAddr())
	fmt.Println(listener.AcceptInto(new(sock.Socket)) == sock.ErrWouldBlock)
	s.Close()
	// Output:
	// <nil> true
	// true
}

// One listener per worker on the same address. The system distributes the connections among them.
func ExampleListenTCPGroup() {
	const workers = 4
	group, err := sock.ListenTCPGroup(sock.Loopback, sock.ListenOptions{}, workers)
	if errors.Is(err, errors.ErrUnsupported) {
		var one *sock.Socket // shared by all workers
		one, err = sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
		group = []*sock.Socket{one}
	}
	if err != nil {
		log.Fatal(err)
	}
	same := true
	for _, l := range group {
		defer l.Close()
		same = same && l.LocalAddr() == group[0].LocalAddr()
	}
	fmt.Println(same)
	// Output: true
}

// Datagrams are received one at a time.
func ExampleListenUDP() {
	server, err := sock.ListenUDP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := sock.New(sock.UDP4)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if err := client.SendTo([]byte("hello"), server.LocalAddr()); err != nil {
		log.Fatal(err)
	}

	await(server, socknotify.EventIn)
	buf := make([]byte, 1500)
	n, from, err := server.RecvFrom(buf)
	fmt.Printf("%s %t %v\n", buf[:n], from.Port() == client.LocalAddr().Port(), err)
	// Output: hello true <nil>
}

func ExampleListenUnix() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "echo")
	listener, err := sock.ListenUnix(path, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()

	client, err := sock.New(sock.Unix)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if err := client.ConnectUnix(path); err != nil {
		log.Fatal(err)
	}
	server := accepted(listener)
	defer server.Close()
	fmt.Println(listener.LocalPath() == path)
	// Output: true
}

// The steps of ListenUnix, for programs that set options in between.
func ExampleSocket_BindUnix() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	listener, err := sock.New(sock.Unix)
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	fmt.Println(listener.BindUnix(filepath.Join(dir, "echo")), listener.Listen(0))
	// Output: <nil> <nil>
}

func ExampleUnixPair() {
	a, b, err := sock.UnixPair(false)
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	a.Send([]byte("hello"))
	a.Close()
	await(b, socknotify.EventIn)
	buf := make([]byte, 16)
	n, err := b.Recv(buf)
	fmt.Printf("%s %v\n", buf[:n], err)
	_, err = b.Recv(buf)
	fmt.Println(err == io.EOF, b.Close())
	// Output:
	// hello <nil>
	// true <nil>
}

// The network depends on an address that was given by the user.
func ExampleNetworkOf() {
	for _, text := range []string{"192.0.2.1:53", "[2001:db8::1]:53"} {
		a := netip.MustParseAddrPort(text)
		fmt.Println(sock.NetworkOf(a, sock.UDP4, sock.UDP6))
	}
	// Output:
	// udp4
	// udp6
}

// A server that has run out of descriptors continues when some are free again.
func ExampleIsExhausted() {
	listener, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	switch _, err := listener.Accept(); {
	case err == nil:
	case err == sock.ErrWouldBlock:
		fmt.Println("no connection waits")
	case sock.IsExhausted(err):
		fmt.Println("try again later")
	default:
		fmt.Println("the listener has failed:", err)
	}
	// Output: no connection waits
}
