//go:build unix

package sock_test

import (
	"fmt"
	"log"
	"syscall"

	"github.com/socknotify/socknotify/sock"
)

// A handle may come from C code or from the parent process. After Adopt the Socket owns the handle. If Adopt fails, the
// caller still owns it.
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

// A socket option that package sock has no method for.
func ExampleSocket_SyscallConn() {
	s, err := sock.New(sock.TCP4)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	raw, err := s.SyscallConn()
	if err != nil {
		log.Fatal(err)
	}
	var set error
	err = raw.Control(func(handle uintptr) {
		set = syscall.SetsockoptInt(int(handle), syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	})
	on, _ := s.NoDelay()
	fmt.Println(err, set, on)
	// Output: <nil> <nil> true
}
