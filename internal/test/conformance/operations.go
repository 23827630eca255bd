package conformance

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/overlapped"
	"github.com/socknotify/socknotify/sock"
)

type (
	op      = overlapped.Op[any]
	opEntry = overlapped.Request[any]
)

func (e *env) recv(p *port, s *socket, k any, b []byte, o *op) {
	e.Helper()
	e.mustDo("Recv", overlapped.Recv(p, s.Socket, k, b, o))
}

// result takes an operation's result out of its completion.
func (e *env) result(got note, k any, o *op) (int, error) {
	posted := got.Kind() == socknotify.KindPosted
	if got.Key != k || overlapped.Of(&got) != o || got.Events != socknotify.EventNone || posted {
		e.Fatalf("notification of %v: %v, posted %t, completed %p; want a completion of %v, %p",
			got.Key, got.Events, posted, overlapped.Of(&got), k, o)
	}
	n, err := o.Result()
	if uintptr(n) != got.Data {
		e.Fatalf("%d bytes, and Data %d", n, got.Data)
	}
	return n, err
}

// An echoConn is the state of a connection that is served by operations.
type echoConn struct {
	s          *socket
	buf        []byte
	recv, send op
}

// next returns the operation that follows a completion: a send of what was received, or a receive.
// With a port it starts it, by its own function. It fails when the stream has ended.
func (c *echoConn) next(got *note, p *port) (q opEntry, err error) {
	n, err := overlapped.Of(got).Result()
	received, s := overlapped.Of(got) == &c.recv, c.s.Socket
	switch {
	case err != nil:
	case p == nil && received:
		q = overlapped.SendRequest[any](s, c, c.buf[:n], &c.send)
	case p == nil:
		q = overlapped.RecvRequest[any](s, c, c.buf, &c.recv)
	case received:
		err = overlapped.Send[any](p, s, c, c.buf[:n], &c.send)
	default:
		err = overlapped.Recv[any](p, s, c, c.buf, &c.recv)
	}
	return q, err
}

// echoed sends messages and waits for each to come back, and shuts the stream.
func echoed(s *sock.Socket, rounds int) error {
	b := make([]byte, 64)
	for i := range rounds {
		msg := strings.Repeat(string(rune('a'+i%26)), 1+i%40)
		if _, err := s.Send([]byte(msg)); err != nil {
			return err
		}
		for got := ""; got != msg; {
			n, err := s.Recv(b)
			if err == nil {
				got += string(b[:n])
			} else if err != sock.ErrWouldBlock {
				return err
			} else {
				time.Sleep(50 * time.Microsecond)
			}
		}
	}
	return s.Shutdown(sock.ShutWrite)
}

// opManyWaiters echoes on many connections with many waiters. Each starts the operation that
// follows a completion by its own function, or in a batch in the next call.
func opManyWaiters(e *env, conns, waiters, entries int, batch bool) {
	const rounds = 50
	p := e.port()
	by := p
	if batch {
		by = nil
	}
	var ended atomic.Int32
	loop := func() error {
		out := make([]note, entries)
		var ops []opEntry
		for {
			n, err := overlapped.Process(p, ops, out, -1)
			for i := range ops {
				err = errors.Join(err, ops[i].Result)
			}
			ops = ops[:0]
			for i := 0; i < n && err == nil; i++ {
				if out[i].Kind() == socknotify.KindPosted {
					return p.Post(nil, 0) // for the others
				}
				c := out[i].Key.(*echoConn)
				var next opEntry
				if next, err = c.next(&out[i], by); err == nil && batch {
					ops = append(ops, next)
				}
				if err == io.EOF {
					ended.Add(1)
					err = nil
				}
			}
			if err != nil {
				return err
			}
		}
	}
	var clients, loops []<-chan error
	for range conns {
		s, peer := e.tcp()
		c := &echoConn{s: s, buf: make([]byte, 64)}
		e.recv(p, s, c, c.buf, &c.recv)
		clients = append(clients, async(func() error { return echoed(peer.Socket, rounds) }))
	}
	for range waiters {
		loops = append(loops, async(loop))
	}
	for _, c := range clients {
		e.end(c, "a client")
	}
	e.until("every stream has ended", func() bool { return int(ended.Load()) == conns })
	p.Post(nil, 0)
	for _, l := range loops {
		e.end(l, "a loop")
	}
}

// closeSocketRaces closes sockets whose operations are being started, carried out and canceled.
func closeSocketRaces(e *env) {
	p := e.port()
	var completed atomic.Int32
	stop := e.workers(p, 3, 2, func(got note) { completed.Add(1) })
	started := int32(0)
	for range 100 {
		s, peer := e.unix()
		var ops [4]op
		var b [4][8]byte
		begin := async(func() error {
			for i := range ops {
				start := overlapped.Recv[any]
				if i%2 == 1 {
					start = overlapped.Send
				}
				if err := start(p, s.Socket, s, b[i][:], &ops[i]); err == nil {
					started++
				} else if !errors.Is(err, net.ErrClosed) {
					return err
				}
			}
			return nil
		})
		sent := async(func() error { peer.Send([]byte("x")); return nil })
		end := async(s.Close)
		e.end(begin, "starting")
		e.end(sent, "sending")
		e.end(end, "closing")
		e.until("everything has completed", func() bool { return completed.Load() == started })
		peer.Close()
	}
	stop()
}

// closePortRaces closes a port under operations. Whatever buffers it has left are the caller's: the
// race detector looks.
func closePortRaces(e *env) {
	for range 30 {
		p := e.port()
		var conns []*echoConn
		var peers []*socket
		for range 4 {
			s, peer := e.unix()
			c := &echoConn{s: s, buf: make([]byte, 64)}
			e.recv(p, s, c, c.buf, &c.recv)
			conns, peers = append(conns, c), append(peers, peer)
		}
		stop := e.workers(p, 2, 2, func(got note) {
			next, _ := got.Key.(*echoConn).next(&got, nil)
			overlapped.Process(p, []opEntry{next}, nil, 0)
		})
		for _, peer := range peers {
			e.send(peer, "xyz")
		}
		stop()
		for _, c := range conns {
			c.buf[0]++
			c.s.Close()
		}
	}
}
