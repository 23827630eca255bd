package sock_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/handles"
	"github.com/socknotify/socknotify/sock"
)

// A life is a connection that is used by several goroutines while others close it. What it carries is
// marked as its own, so that a call is seen that met another socket, because that was given the number
// meanwhile: it puts some of one life into another, or takes some out.
type life struct {
	t      *testing.T
	marker int // of what a sends, and one more of what b does
	a, b   *sock.Socket
	// send and receive go on until the socket is closed.
	send    func(l *life, s *sock.Socket, marker int)
	receive func(l *life, s *sock.Socket, marker int, count *atomic.Int64)
}

// fine reports whether an error is one that a socket may have that is closed at either end.
func fine(err error) bool {
	for _, is := range []error{io.EOF, net.ErrClosed, unix.EPIPE, unix.ECONNRESET, unix.ENOTCONN, unix.ECONNREFUSED} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// over is called with every error; true says that the socket is closed.
func (l *life) over(what string, err error) bool {
	switch {
	case err == nil || err == sock.ErrWouldBlock:
		runtime.Gosched()
		return l.t.Failed()
	case !fine(err):
		l.t.Errorf("%s: %v", what, err)
		return true
	}
	return errors.Is(err, net.ErrClosed)
}

// sendStream sends a keystream in many small buffers: the call has work to do before it enters the system.
func sendStream(l *life, s *sock.Socket, marker int) {
	buf, bufs := make([]byte, 640), make([][]byte, 64)
	for i := range bufs {
		bufs[i] = buf[10*i : 10*i+10]
	}
	for at := 0; ; {
		fillKeystream(buf, marker, at)
		n, err := s.SendV(bufs)
		if at += n; l.over("SendV", err) {
			return
		}
	}
}

func receiveStream(l *life, s *sock.Socket, marker int, count *atomic.Int64) {
	buf, want := make([]byte, 900), make([]byte, 900)
	for at := 0; ; {
		n, err := s.Recv(buf)
		fillKeystream(want[:n], marker, at)
		if !bytes.Equal(buf[:n], want[:n]) {
			l.t.Errorf("received at %d what is another socket's", at)
			return
		}
		at += n
		if count.Add(int64(n)); l.over("Recv", err) {
			return
		}
	}
}

// sendNumbered sends datagrams that have the marker and count.
func sendNumbered(l *life, s *sock.Socket, marker int) {
	msgs := room(sock.MaxBatch, 16)
	for at := 0; ; {
		for i := range msgs {
			binary.LittleEndian.PutUint64(msgs[i].Buf, uint64(marker))
			binary.LittleEndian.PutUint64(msgs[i].Buf[8:], uint64(at+i))
		}
		n, err := s.SendBatch(msgs)
		if at += n; l.over("SendBatch", err) {
			return
		}
	}
}

func receiveNumbered(l *life, s *sock.Socket, marker int, count *atomic.Int64) {
	msgs := room(sock.MaxBatch, 32)
	for at := 0; ; {
		n, err := s.RecvBatch(msgs)
		for _, m := range msgs[:n] {
			b := m.Buf[:m.N]
			if m.N != 16 || binary.LittleEndian.Uint64(b) != uint64(marker) || binary.LittleEndian.Uint64(b[8:]) != uint64(at) {
				l.t.Errorf("received as number %d of %d: %x", at, marker, b)
				return
			}
			at++
		}
		if count.Add(int64(n)); l.over("RecvBatch", err) {
			return
		}
	}
}

// live uses the sockets until some has come through both, and closes them under all that.
func (l *life) live() {
	var all sync.WaitGroup
	var received, closed [2]atomic.Int64
	ends := []*sock.Socket{l.a, l.b}
	for i, s := range ends {
		all.Go(func() { l.send(l, s, l.marker+i) })
		all.Go(func() { l.receive(l, s, l.marker+1-i, &received[i]) })
		all.Go(func() {
			for !l.over("Err", s.Err()) {
				s.LocalAddr()
			}
		})
	}
	for end := time.Now().Add(soon); received[0].Load() < 50 || received[1].Load() < 50; runtime.Gosched() {
		if time.Now().After(end) {
			l.t.Error("it does not get on")
		}
		if l.t.Failed() {
			break
		}
	}
	for i := range 3 {
		all.Go(func() {
			for j := range 2 {
				j ^= i & 1
				if err := ends[j].Close(); err == nil {
					closed[j].Add(1)
				} else if !errors.Is(err, net.ErrClosed) {
					l.t.Errorf("Close: %v", err)
				}
			}
		})
	}
	all.Wait()
	if closed[0].Load() != 1 || closed[1].Load() != 1 || l.a.Handle() != none || l.b.Handle() != none {
		l.t.Errorf("closed %d and %d times", closed[0].Load(), closed[1].Load())
	}
}

// No call meets another socket that was given the number of one that is closed under it, nothing but the
// end comes out of any, and no descriptor is left.
func TestClosedUnderUse(t *testing.T) {
	handles.NoneLeft(t, "")
	// More threads than processors, so that the system takes turns among them anywhere.
	was := runtime.GOMAXPROCS(8)
	t.Cleanup(func() { runtime.GOMAXPROCS(was) })

	listener := listen(t, sock.Loopback)
	var connecting sync.Mutex
	open := func(n int) (l *life, err error) {
		l = &life{t: t, marker: 2 * n, send: sendStream, receive: receiveStream}
		switch n % 4 {
		case 0:
			l.a, l.b, err = sock.UnixPair(false)
		case 1:
			connecting.Lock()
			defer connecting.Unlock()
			l.a, l.b, err = connectTo(listener)
		default:
			l.a, l.b, err = sock.UnixPair(true)
			l.send, l.receive = sendNumbered, receiveNumbered
		}
		return l, err
	}
	var numbers sync.Map
	var count, reused atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 150 {
				l, err := open(int(count.Add(1)))
				if err != nil {
					t.Error(err)
					return
				}
				if _, again := numbers.Swap(l.a.Handle(), true); again {
					reused.Add(1)
				}
				if l.live(); t.Failed() {
					return
				}
			}
		})
	}
	all.Wait()
	if reused.Load() == 0 && !t.Failed() {
		t.Error("no number was ever used again")
	}
}

// connectTo makes a connection that ends in a reset where the client is closed first.
func connectTo(l *sock.Socket) (a, b *sock.Socket, err error) {
	if a, err = sock.New(sock.TCP4); err != nil {
		return nil, nil, err
	}
	if err = a.Connect(l.LocalAddr()); err != nil && err != sock.ErrWouldBlock {
		return nil, nil, err
	}
	b = new(sock.Socket)
	for err = l.AcceptInto(b); err == sock.ErrWouldBlock; err = l.AcceptInto(b) {
		runtime.Gosched()
	}
	if err == nil {
		err = a.SetLinger(0)
	}
	return a, b, err
}

// Calls that find a Socket closed harm no connection that is accepted into it meanwhile.
func TestAcceptIntoUnderUse(t *testing.T) {
	handles.NoneLeft(t, "")
	l := listen(t, sock.Loopback)
	var s sock.Socket
	var stop atomic.Bool
	var all sync.WaitGroup
	for _, name := range []string{"Recv", "Send", "Err", "RecvBatch"} {
		all.Go(func() {
			for !stop.Load() {
				if err := calls[name].call(&s); err != nil && err != sock.ErrWouldBlock && !fine(err) {
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}
	t.Cleanup(func() { stop.Store(true); all.Wait() })
	for range 200 {
		c := connect(t, l.LocalAddr())
		settle(t, l, in)
		err, end := l.AcceptInto(&s), time.Now().Add(soon)
		for ; errors.As(err, new(*sock.Error)) && time.Now().Before(end); err = l.AcceptInto(&s) {
			runtime.Gosched() // the last call on what it was is not done yet
		}
		if err != nil {
			t.Fatalf("the connection is lost: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("somebody else closed it: %v", err)
		}
		c.Close()
	}
}
