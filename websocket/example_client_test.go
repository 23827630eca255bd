package websocket_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
)

// A client is what the example needs of one: texts of fewer than 126 bytes.
type client struct {
	conn net.Conn
	in   *bufio.Reader
}

func dial(addr, path string) *client {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", path, addr)
	c := &client{conn, bufio.NewReader(conn)}
	if _, err := http.ReadResponse(c.in, nil); err != nil {
		log.Fatal(err)
	}
	return c
}

// write sends a text with a mask of zeros.
func (c *client) write(text string) {
	c.conn.Write(append([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...))
}

func (c *client) read() string {
	var head [2]byte
	io.ReadFull(c.in, head[:])
	text := make([]byte, head[1])
	if _, err := io.ReadFull(c.in, text); err != nil {
		log.Fatal(err)
	}
	return string(text)
}
