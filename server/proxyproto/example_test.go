package proxyproto_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"net/netip"

	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/server/proxyproto"
)

// A server behind a load balancer sees the addresses of its peers.
func ExampleConfig_Preamble() {
	balancers := proxyproto.Config{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	s := &server.Server[int]{Handler: greeter{}, Preamble: balancers.Preamble}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()

	// What a balancer sends for a peer.
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(c, "PROXY TCP4 192.0.2.1 203.0.113.7 40000 443\r\nhello\n")
	answer, err := bufio.NewReader(c).ReadString('\n')
	fmt.Print(answer, err, "\n")

	c.Close()
	s.Close()
	<-served
	s.Shutdown(context.Background())
	// Output:
	// hello, 192.0.2.1:40000
	// <nil>
}

// A greeter answers each line with the address of the peer.
type greeter struct{}

func (greeter) Open(c *server.Conn[int]) error { return nil }

func (greeter) Data(c *server.Conn[int], buf []byte) error {
	line, err := c.Line(100)
	if err == nil {
		_, err = fmt.Fprintf(c, "%s, %v\n", line, c.RemoteAddr())
	}
	return err
}

func (greeter) Close(c *server.Conn[int], cause error) {}
