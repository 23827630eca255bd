//go:build unix

package handover_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/server/handover"
)

// A program that is replaced by a newer one on SIGHUP, without refusing a connection.
func Example() {
	set, err := handover.Inherit()
	if err != nil {
		log.Fatal(err)
	}
	l, err := set.Listen("lines", "tcp", "127.0.0.1:8080") // the predecessor's, if there is one
	if err != nil {
		log.Fatal(err)
	}
	s := &server.Server[struct{}]{Handler: hexer{}}
	go s.Serve(l)
	if err := set.Ready(); err != nil { // the predecessor's Start returns
		log.Fatal(err)
	}

	replace := make(chan os.Signal, 1)
	signal.Notify(replace, syscall.SIGHUP)
	for range replace {
		limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := set.Start(limit, exec.Command(os.Args[0], os.Args[1:]...))
		cancel()
		if err == nil {
			break
		}
		log.Print("not replaced: ", err) // and this process serves on
	}
	s.Shutdown(context.Background()) // serves what it has accepted
}

// Without a predecessor the listeners are new ones.
func ExampleSet_Listen() {
	set, err := handover.Inherit()
	if err != nil {
		log.Fatal(err)
	}
	l, err := set.Listen("lines", "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	fmt.Println(l.Addr().Network(), set.Ready())
	// Output: tcp <nil>
}

// A successor that ends before it is ready changes nothing.
func ExampleSet_Start() {
	set, err := handover.Inherit()
	if err != nil {
		log.Fatal(err)
	}
	l, err := set.Listen("lines", "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	err = set.Start(context.Background(), exec.Command("false"))
	fmt.Println(errors.Is(err, handover.ErrNotReady))
	// Output: true
}

// A hexer answers each line in hexadecimal digits.
type hexer struct{}

func (hexer) Open(c *server.Conn[struct{}]) error { return nil }

func (hexer) Data(c *server.Conn[struct{}], buf []byte) error {
	for {
		line, err := c.Line(1000)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(c, "%X\n", line); err != nil {
			return err
		}
	}
}

func (hexer) Close(c *server.Conn[struct{}], cause error) {}
