package main

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/sockettest"
)

// What follows an urgent byte is passed on, also if the kernel moves the bytes.
func TestProxyTCPUrgent(t *testing.T) {
	backend, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	address, stop := proxied(t, "--tcp", "--to", backend.Addr().String(), "--check", "0")
	conn, _ := dialProxy(t, address)
	server, err := backend.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	server.SetDeadline(time.Now().Add(time.Minute))
	much := sockettest.Sequence(0, 8<<20)
	go func() {
		conn.Write(append(much, "before-"...))
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err == nil {
			raw.Control(func(fd uintptr) { err = sockettest.SendUrgent(fd, '!') })
		}
		if err != nil {
			t.Error(err)
		}
		io.WriteString(conn, "-after")
		conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(server)
	if want := append(much[:len(much):len(much)], "before--after"...); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v, want %d", len(got), err, len(want))
	}
	conn.Close()
	server.Close()
	stop()
}
