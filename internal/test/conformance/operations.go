package conformance

import (
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"time"
	"weak"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/overlapped"
	"github.com/socknotify/socknotify/sock"
)

type op = overlapped.Op[any]

// O1 to O3: operations on sockets as such.
var operationCases = map[string]func(*env){
	"O1/ManyWaiters":            opManyWaiters,
	"O1/StandingCondition":      opStanding,
	"O2/Released":               opReleases,
	"O3/ReceivesAtOnceAndLater": opMixedOrder,
	"O3/Sends":                  opSendOrder,
	"O12/HappensBefore":         opHappensBefore,
	"O12/Echo":                  opAllocEcho,
	"O12/Datagrams":             opAllocDatagrams,
	"O12/Files":                 opAllocFiles,
}

func (e *env) recv(p *port, s *socket, k any, b []byte, o *op) {
	e.Helper()
	if err := overlapped.Recv(p, s.Socket, k, b, o); err != nil {
		e.Fatalf("Recv: %v", err)
	}
}

func (e *env) startSend(p *port, s *socket, k any, b []byte, o *op) {
	e.Helper()
	if err := overlapped.Send(p, s.Socket, k, b, o); err != nil {
		e.Fatalf("Send: %v", err)
	}
}

// result takes an operation's result out of its completion.
func (e *env) result(got note, k any, o *op) (int, error) {
	e.Helper()
	if got.Key != k || overlapped.Of(&got) != o || got.Events != socknotify.EventNone || got.Kind() == socknotify.KindPosted {
		e.Fatalf("notification of %v: %v, posted %t, completed %p; want a completion of %v, %p",
			got.Key, got.Events, got.Kind() == socknotify.KindPosted, overlapped.Of(&got), k, o)
	}
	n, err := o.Result()
	if uintptr(n) != got.Data {
		e.Fatalf("%d bytes, and Data %d", n, got.Data)
	}
	return n, err
}

// moved waits for a completion without error.
func (e *env) moved(p *port, k any, o *op) int {
	e.Helper()
	n, err := e.result(e.next(p), k, o)
	if err != nil {
		e.Fatalf("completed with %d, %v", n, err)
	}
	return n
}

// failed waits for a completion with an error, which is all of these.
func (e *env) failed(p *port, k any, o *op, want ...error) int {
	e.Helper()
	n, err := e.result(e.next(p), k, o)
	e.wantErr(err, want...)
	var of *overlapped.Error
	if err != io.EOF && !errors.As(err, &of) {
		e.Fatalf("completed with a %T: %v", err, err)
	}
	return n
}

// received waits for a completed receive and checks what came.
func (e *env) received(p *port, k any, o *op, b []byte, want string) {
	e.Helper()
	if n := e.moved(p, k, o); string(b[:n]) != want {
		e.Fatalf("received %q; want %q", b[:n], want)
	}
}

// An echoConn is the state of a connection that opManyWaiters serves.
type echoConn struct {
	s          *socket
	buf        []byte
	recv, send op
}

// opManyWaiters echoes on many connections with many waiters, each operation's completion starting the next.
func opManyWaiters(e *env) {
	p := e.port()
	const conns, rounds = 16, 50
	var ended atomic.Int32
	stop := e.workers(p, 4, 3, func(got note) {
		c := got.Key.(*echoConn)
		n, err := overlapped.Of(&got).Result()
		switch {
		case overlapped.Of(&got) == &c.send:
			if err == nil {
				err = overlapped.Recv[any](p, c.s.Socket, c, c.buf, &c.recv)
			}
		case err == nil:
			err = overlapped.Send[any](p, c.s.Socket, c, c.buf[:n], &c.send)
		}
		if err == io.EOF {
			ended.Add(1)
		} else if err != nil {
			e.Errorf("%v", err)
		}
	})
	var clients []<-chan error
	for range conns {
		s, peer := e.tcp()
		c := &echoConn{s: s, buf: make([]byte, 64)}
		e.recv(p, s, c, c.buf, &c.recv)
		clients = append(clients, async(func() error { return echoed(peer.Socket, rounds) }))
	}
	for _, c := range clients {
		e.end(c, "a client")
	}
	e.until("every stream has ended", func() bool { return ended.Load() == conns })
	stop()
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

func opReleases(e *env) {
	p := e.port()
	s, peer := e.unix()
	var o op
	var buffer weak.Pointer[[64]byte]
	keys := weakKeys(1, func(_ int, k *key) {
		b := new([64]byte)
		buffer = weak.Make(b)
		e.recv(p, s, k, b[:], &o)
		e.deliver(peer, s, "x")
		e.received(p, k, &o, b[:], "x")
	})
	e.released("a completed operation's key", keys)
	e.collected("a completed operation's buffer", func() bool { return buffer.Value() == nil })
	if n, err := o.Result(); n != 1 || err != nil {
		e.Errorf("Result = %d, %v", n, err)
	}
}
