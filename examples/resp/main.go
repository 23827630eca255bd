// Command resp is a server of the Redis protocol: GET, SET and PING, pipelined, with values of up to 64 MiB.
package main

import (
	"bytes"
	"errors"
	"flag"
	"log"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/socknotify/socknotify/server"
)

type conn = *server.Conn[struct{}]
type store struct{ values sync.Map } // the handler

func (s *store) Open(c conn) error         { return nil }
func (s *store) Close(c conn, cause error) {}

func (s *store) Data(c conn, buf []byte) (err error) {
	for args := make([][]byte, 0, 4); err == nil; {
		c.Mark()                                                           // a command that is not complete is read again when more has come
		if args, err = command(c, args[:0]); err == nil && len(args) > 1 { // an empty command has no answer
			head, value, tail := s.answer(args, buf[:0])
			_, err = c.Writev([][]byte{head, value, tail})
		}
	}
	return err
}

var errProtocol = errors.New("resp: protocol error")

// command reads "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", or the same as a line, "GET k".
func command(c conn, args [][]byte) ([][]byte, error) {
	line, err := c.Line(64 << 10)
	if err != nil || !bytes.HasPrefix(line, []byte("*")) {
		return append(append(args, bytes.Fields(line)...), nil), err
	}
	n, err := strconv.ParseInt(string(line[1:]), 10, 64)
	if err != nil || n > 1024 {
		return nil, errProtocol
	}
	for ; n > 0; n-- { // which may be 0 or less from the beginning
		if line, err = c.Line(64); err != nil {
			return nil, err
		}
		size, err := strconv.ParseUint(string(bytes.TrimPrefix(line, []byte("$"))), 10, 30)
		if err != nil || line[0] != '$' {
			return nil, errProtocol
		}
		value, err := c.Next(int(size) + len("\r\n"))
		if err != nil {
			return nil, err
		}
		args = append(args, value[:size])
	}
	return append(args, nil), nil
}

func (s *store) answer(args [][]byte, buf []byte) (head, value, tail []byte) {
	text := "-ERR unknown command\r\n"
	switch name := strings.ToUpper(string(args[0])); {
	case name == "PING":
		text = "+PONG\r\n"
	case name == "SET" && len(args) == 4: // the last one is nil
		s.values.Store(string(args[1]), bytes.Clone(args[2]))
		text = "+OK\r\n"
	case name == "GET" && len(args) == 3:
		if v, ok := s.values.Load(string(args[1])); ok {
			head = append(strconv.AppendInt(append(buf, '$'), int64(len(v.([]byte))), 10), "\r\n"...)
			return head, v.([]byte), head[len(head)-2:]
		}
		text = "$-1\r\n"
	}
	return append(buf, text...), nil, nil
}

func main() {
	addr := flag.String("addr", "127.0.0.1:6379", "address to listen on")
	flag.Parse()
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	log.Println("listening on", l.Addr())
	log.Fatal((&server.Server[struct{}]{Handler: new(store), MaxMessage: 65 << 20}).Serve(l))
}
