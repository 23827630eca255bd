package park_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"time"

	"github.com/socknotify/socknotify/park"
)

// newPair returns both ends of a new connection.
func newPair() (server, client net.Conn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	client, err = net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	server, err = ln.Accept()
	if err != nil {
		log.Fatal(err)
	}
	return server, client
}

// A connection is parked until its peer sends something.
func ExampleNew() {
	lot, err := park.New(park.Config{IdleTimeout: time.Minute, MaxRunning: 100})
	if err != nil {
		log.Fatal(err)
	}
	server, client := newPair()
	said := make(chan string)
	err = lot.Park(server, func(conn net.Conn) {
		defer conn.Close()
		buf := make([]byte, 16)
		n, _ := conn.Read(buf)
		said <- string(buf[:n])
	})
	fmt.Println(err, lot.Stats().Parks)
	fmt.Fprint(client, "hello")
	fmt.Println(<-said)
	client.Close()
	fmt.Println(lot.Shutdown(context.Background())) // waits for the functions that run
	// Output:
	// <nil> 1
	// hello
	// <nil>
}

// A function that reads through a bufio.Reader passes it to ParkWith, because the reader may hold bytes.
func ExampleLot_ParkWith() {
	lot, err := park.New(park.Config{IdleTimeout: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer lot.Close()
	server, client := newPair()
	defer client.Close()
	in := bufio.NewReader(server)
	ended := make(chan error)
	var serve func(net.Conn)
	serve = func(conn net.Conn) {
		line, err := in.ReadString('\n')
		if err == nil {
			fmt.Printf("%q\n", line)
			err = lot.ParkWith(conn, park.Options{Reader: in, IdleTimeout: time.Hour}, serve)
		}
		if err != nil {
			conn.Close()
			ended <- err
		}
	}
	if err := lot.ParkWith(server, park.Options{Reader: in}, serve); err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(client, "one\ntwo\n")
	client.Close()
	fmt.Println(<-ended)
	// Output:
	// "one\n"
	// "two\n"
	// EOF
}

// A server takes a parked connection back to send something, or closes it.
func ExampleLot_Unpark() {
	lot, err := park.New(park.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer lot.Close()
	server, client := newPair()
	defer client.Close()
	ended := make(chan error)
	idle := func(conn net.Conn) {
		_, err := conn.Read(make([]byte, 1))
		conn.Close()
		ended <- err
	}
	if err := lot.Park(server, idle); err != nil {
		log.Fatal(err)
	}
	if lot.Unpark(server) { // we own it again
		fmt.Fprint(server, "news")
		if err := lot.Park(server, idle); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(lot.CloseConn(server))
	fmt.Println(errors.Is(<-ended, net.ErrClosed))
	got, _ := io.ReadAll(client)
	fmt.Printf("%s\n", got)
	// Output:
	// <nil>
	// true
	// news
}

// The lot's port can be observed by package debug or by a metrics collector.
func ExampleLot_Port() {
	lot, err := park.New(park.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer lot.Close()
	server, client := newPair()
	defer client.Close()
	if err := lot.Park(server, func(conn net.Conn) { conn.Close() }); err != nil {
		log.Fatal(err)
	}
	fmt.Println(lot.Port().Stats().Registrations, lot.Stats().Parked)
	// Output: 1 1
}

// A BufferedConn reads ahead, as the connections of many protocols do.
type bufferedConn struct {
	net.Conn
	in *bufio.Reader
}

func (a bufferedConn) Read(p []byte) (int, error) { return a.in.Read(p) }
func (a bufferedConn) NetConn() net.Conn          { return a.Conn }

// A connection that reads ahead is wrapped before its first use. The result of Wrap is parked.
func ExampleWrap() {
	lot, err := park.New(park.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer lot.Close()
	server, client := newPair()
	defer client.Close()
	fmt.Fprint(client, "hello")

	conn := park.Wrap(bufferedConn{server, bufio.NewReader(server)})
	buf := make([]byte, 2)
	io.ReadFull(conn, buf)
	fmt.Printf("%s\n", buf)
	rest := make(chan []byte)
	if err := lot.Park(conn, func(c net.Conn) {
		defer c.Close()
		fmt.Println(c == net.Conn(conn)) // runs immediately: the reader held bytes
		more, _ := io.ReadAll(c)
		rest <- more
	}); err != nil {
		log.Fatal(err)
	}
	client.Close()
	fmt.Printf("%s\n", bytes.ToUpper(<-rest))
	_, isAhead := conn.NetConn().(bufferedConn)
	fmt.Println(isAhead)
	// Output:
	// he
	// true
	// LLO
	// true
}

// The write side of a connection can be closed through the wrapper.
func ExampleConn_CloseWrite() {
	server, client := newPair()
	defer server.Close()
	defer client.Close()
	conn := park.Wrap(server)
	fmt.Fprint(conn, "goodbye")
	fmt.Println(conn.CloseWrite())
	got, err := io.ReadAll(client)
	fmt.Printf("%s %v\n", got, err)
	client.Close()
	_, err = conn.Read(make([]byte, 1))
	fmt.Println(err)
	// Output:
	// <nil>
	// goodbye <nil>
	// EOF
}

// Close discards bytes that were read ahead.
func ExampleConn_Close() {
	server, client := newPair()
	defer client.Close()
	conn := park.Wrap(server)
	fmt.Println(conn.Close())
	_, err := conn.Read(make([]byte, 1))
	fmt.Println(errors.Is(err, net.ErrClosed))
	// Output:
	// <nil>
	// true
}
