// Command tlsecho is an echo server with TLS. Its handler uses TLS only for the protocol that was negotiated (ALPN): a
// client that asks for "shout" is answered in capitals.
//
// An idle connection has no goroutine, and no buffers except those of crypto/tls. The certificate is generated at the
// start, so a client cannot verify it:
//
//	openssl s_client -quiet -connect 127.0.0.1:7443 -alpn shout
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/server"
)

// A client is the state of a connection.
type client struct{ shouts bool }

type conn = *server.Conn[client]

type echo struct{}

// Open is called after the handshake.
func (*echo) Open(c conn) error {
	c.Value.shouts = c.TLS().NegotiatedProtocol == "shout"
	return nil
}

func (*echo) Data(c conn, buf []byte) error {
	n, err := c.Read(buf)
	if err != nil {
		return err // io.EOF closes the connection with a close_notify
	}
	answer := buf[:n]
	if c.Value.shouts {
		answer = bytes.ToUpper(answer)
	}
	_, err = c.Write(answer) // Data is not called while much is queued, so Write takes all of it
	return err
}

func (*echo) Close(c conn, cause error) {
	if cause != nil {
		log.Println(c.RemoteAddr(), cause)
	}
}

func main() {
	addr := flag.String("addr", "127.0.0.1:7443", "address to listen on")
	flag.Parse()
	cert, _, err := selfcert.New(365*24*time.Hour, "localhost", "127.0.0.1")
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	log.Println("listening on", l.Addr())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := serve(ctx, l, cert, ""); err != nil {
		log.Fatal(err)
	}
}

// serve serves until the context is done, and then sends the answers that are queued.
func serve(ctx context.Context, l net.Listener, cert tls.Certificate, backend string) error {
	s := &server.Server[client]{
		Handler: &echo{}, Backend: backend, IdleTimeout: 5 * time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"echo", "shout"}},
	}
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		stopped <- s.Shutdown(limit)
	})
	if err := s.ServeTLS(l, "", ""); err != server.ErrServerClosed {
		return err
	}
	return <-stopped
}
