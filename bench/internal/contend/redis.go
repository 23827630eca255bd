package contend

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	snserver "github.com/socknotify/socknotify/server"
)

// A server of the Redis protocol is here twice: on package server with its defaults, and with a
// goroutine for each connection. Both find commands and answers with the same code.

func serveRedis(_ Params, ready func(string)) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ready(l.Addr().String())
	return (&snserver.Server[struct{}]{Handler: new(store)}).Serve(l)
}

func serveRedisStd(_ Params, ready func(string)) error {
	return serveConns(ready, new(store).serve)
}

// An input has a command's parts, which stay valid until the next command.
type input interface {
	Line(most int) ([]byte, error)
	Next(n int) ([]byte, error)
}

// command reads "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".
func command[I input](in I, args [][]byte) ([][]byte, error) {
	line, err := in.Line(64 << 10)
	if err != nil || !bytes.HasPrefix(line, []byte("*")) {
		return append(args, bytes.Fields(line)...), err
	}
	n, err := strconv.ParseUint(string(line[1:]), 10, 10)
	for ; n > 0 && err == nil; n-- {
		if line, err = in.Line(64); err == nil {
			size, _ := strconv.ParseUint(strings.TrimPrefix(string(line), "$"), 10, 20)
			line, err = in.Next(int(size) + len("\r\n"))
		}
		args = append(args, bytes.TrimSuffix(line, []byte("\r\n")))
	}
	return args, err
}

type store struct{ values sync.Map }

// answer returns the answer in three parts, the first of which is appended to buf.
func (s *store) answer(args [][]byte, buf []byte) (head, value, tail []byte) {
	text := "-ERR unknown command\r\n"
	switch {
	case len(args) == 3 && string(args[0]) == "SET":
		s.values.Store(string(args[1]), bytes.Clone(args[2]))
		text = "+OK\r\n"
	case len(args) == 2 && string(args[0]) == "GET":
		if v, ok := s.values.Load(string(args[1])); ok {
			head = append(strconv.AppendInt(append(buf, '$'), int64(len(v.([]byte))), 10), "\r\n"...)
			return head, v.([]byte), head[len(head)-2:]
		}
		text = "$-1\r\n"
	}
	return append(buf, text...), nil, nil
}

type conn = *snserver.Conn[struct{}]

func (s *store) Open(conn) error   { return nil }
func (s *store) Close(conn, error) {}
func (s *store) Data(c conn, buf []byte) (err error) {
	for args := make([][]byte, 0, 8); err == nil; {
		c.Mark()
		if args, err = command(c, args[:0]); err == nil {
			head, value, tail := s.answer(args, buf[:0])
			_, err = c.Writev([][]byte{head, value, tail})
		}
	}
	return err
}

// A reader is the input of a goroutine.
type reader struct {
	*bufio.Reader
	kept []byte // what the latest command consists of
}

func (r *reader) keep(b []byte) []byte {
	n := len(r.kept)
	r.kept = append(r.kept, b...)
	return r.kept[n:]
}

func (r *reader) Line(int) ([]byte, error) {
	b, err := r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	return r.keep(bytes.TrimSuffix(b[:len(b)-1], []byte("\r"))), nil
}

func (r *reader) Next(n int) ([]byte, error) {
	have := len(r.kept)
	r.kept = slices.Grow(r.kept, n)[:have+n]
	_, err := io.ReadFull(r.Reader, r.kept[have:])
	return r.kept[have:], err
}

// serve serves a connection until it ends. It writes when all that has arrived is answered.
func (s *store) serve(c net.Conn) {
	defer c.Close()
	r, w := &reader{Reader: bufio.NewReaderSize(c, 16<<10)}, bufio.NewWriterSize(c, 16<<10)
	args, buf := make([][]byte, 0, 8), make([]byte, 64)
	for {
		if r.Buffered() == 0 && w.Flush() != nil {
			return
		}
		r.kept = r.kept[:0]
		var err error
		if args, err = command(r, args[:0]); err != nil {
			return
		}
		head, value, tail := s.answer(args, buf[:0])
		for _, b := range [][]byte{head, value, tail} {
			w.Write(b)
		}
	}
}
