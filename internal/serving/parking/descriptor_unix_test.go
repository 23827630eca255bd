//go:build unix

package parking_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/socknotify/socknotify/internal/serving/parking"

	"github.com/socknotify/socknotify/internal/test/qemu"
)

// A program that has closed its standard input parks a connection whose descriptor is 0. The test closes that of a process
// of its own.
func TestDescriptorZero(t *testing.T) {
	const role = "PARK_TEST_DESCRIPTOR_ZERO"
	if os.Getenv(role) == "" {
		if qemu.StartsNoProgram.Here() {
			t.Skip(qemu.StartsNoProgram)
		}
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDescriptorZero$", "-test.count=1")
		child.Env = append(os.Environ(), role+"=1")
		if out, err := child.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	lot, err := parking.New(parking.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer lot.Close()
	syscall.Close(0)
	for round := range 3 { // the number is used again
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		peer, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) {
			if fd != 0 {
				t.Fatalf("the descriptor is %d", fd)
			}
		})
		if err := lot.Park(conn, func(net.Conn) { t.Error("called, although it was unparked") }); err != nil {
			t.Fatal(err)
		}
		if !lot.Unpark(conn) {
			t.Error("it was not parked")
		}
		got := make(chan string, 1)
		read := func(conn net.Conn) {
			buf := make([]byte, 16)
			n, err := conn.Read(buf)
			got <- fmt.Sprint(string(buf[:n]), err)
		}
		for range 2 {
			if err := lot.Park(conn, read); err != nil {
				t.Fatal(err)
			}
			peer.Write([]byte("hello"))
			if s := <-got; !strings.HasPrefix(s, "hello") {
				t.Fatalf("round %d: read %s", round, s)
			}
		}
		conn.Close()
		peer.Close()
	}
}
