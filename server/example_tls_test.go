package server_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

// A versioner sends its peer what the handshake has negotiated.
type versioner struct{}

func (versioner) Open(c *server.Conn[struct{}]) error {
	fmt.Fprintln(c, tls.VersionName(c.TLS().Version), c.TLS().NegotiatedProtocol)
	return c.Close()
}

func (versioner) Data(c *server.Conn[struct{}], buf []byte) error {
	_, err := c.Read(buf)
	return err
}

func (versioner) Close(c *server.Conn[struct{}], cause error) {}

// A server with TLS. The certificate of a public server comes from an authority, usually in files.
func ExampleServer_ServeTLS() {
	cert, trusted, err := selfcert.New(24*time.Hour, "127.0.0.1")
	if err != nil {
		log.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	s := &server.Server[struct{}]{
		Handler:   versioner{},
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"version"}},
	}
	served := make(chan error)
	go func() { served <- s.ServeTLS(ln, "", "") }()

	client, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{RootCAs: trusted, NextProtos: []string{"version"}})
	if err != nil {
		log.Fatal(err)
	}
	said, err := io.ReadAll(client)
	fmt.Printf("%s%v\n", said, err)
	client.Close()
	s.Shutdown(context.Background())
	fmt.Println(<-served)
	// Output:
	// TLS 1.3 version
	// <nil>
	// server: closed
}

// A listener of package sock, such as one of several on an address.
func ExampleServer_ServeTLSSocket() {
	ln, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	s := &server.Server[struct{}]{Handler: versioner{}}
	fmt.Println(s.ServeTLSSocket(ln, "no-such-cert.pem", "no-such-key.pem") != nil)
	ln.Close()
	s.Shutdown(context.Background())
	// Output: true
}

// A complete program.
func ExampleServer_ListenAndServeTLS() {
	s := &server.Server[struct{}]{Handler: versioner{}, HandshakeTimeout: 5 * time.Second}
	log.Fatal(s.ListenAndServeTLS("tcp", ":8443", "cert.pem", "key.pem"))
}

// A complete program.
func ExampleServer_ListenAndServe() {
	s := &server.Server[[]byte]{Handler: greeter{}}
	log.Fatal(s.ListenAndServe("tcp", ":7000"))
}
