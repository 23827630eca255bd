//go:build unix

package sock_test

import (
	"fmt"
	"log"
	"syscall"

	"github.com/socknotify/socknotify/sock"
)

// A handle that came from elsewhere, such as C, or the process that started this one. It is the socket's from
// then on; one that cannot be taken stays the caller's.
func ExampleAdopt() {
	_, err := sock.Adopt(^uintptr(0), sock.MakeNonblocking)
	fmt.Println(err != nil)

	other, err := sock.New(sock.UDP4)
	if err != nil {
		log.Fatal(err)
	}
	defer other.Close()
	handle, err := syscall.Dup(int(other.Handle()))
	if err != nil {
		log.Fatal(err)
	}
	s, err := sock.Adopt(uintptr(handle), sock.MakeNonblocking)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Bind(sock.Loopback), s.Close())
	// Output:
	// true
	// <nil> <nil>
}
