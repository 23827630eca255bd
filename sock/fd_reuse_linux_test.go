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

	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/internal/test/qemu"
	"github.com/socknotify/socknotify/sock"
)

// A reusedConn is a connection that several goroutines use while others close it. Its data is marked, so that the test
// detects a call that operates on another socket which was given the same number.
type reusedConn struct {
	t      *testing.T
	marker int // marks the data that a sends; marker+1 marks the data that b sends
	a, b   *sock.Socket
	// send and receive run until the socket is closed.
	send    func(l *reusedConn, s *sock.Socket, marker int)
	receive func(l *reusedConn, s *sock.Socket, marker int, count *atomic.Int64)
}

// isExpected reports whether a socket may return err when it is closed at either end.
func isExpected(err error) bool {
	for _, is := range []error{io.EOF, net.ErrClosed, unix.EPIPE, unix.ECONNRESET, unix.ENOTCONN, unix.ECONNREFUSED} {
		if qemu.Is(err, is) {
			return true
		}
	}
	return false
}

// closed checks every error. It reports whether the socket is closed.
func (l *reusedConn) closed(what string, err error) bool {
	switch {
	case err == nil || err == sock.ErrWouldBlock:
		runtime.Gosched()
		return l.t.Failed()
	case !isExpected(err):
		l.t.Errorf("%s: %v", what, err)
		return true
	}
	return errors.Is(err, net.ErrClosed)
}

// sendStream sends a keystream in many small buffers, so that the call takes some time before the system call.
func sendStream(l *reusedConn, s *sock.Socket, marker int) {
	buf, bufs := make([]byte, 640), make([][]byte, 64)
	for i := range bufs {
		bufs[i] = buf[10*i : 10*i+10]
	}
	for at := 0; ; {
		fillKeystream(buf, marker, at)
		n, err := s.SendV(bufs)
		if at += n; l.closed("SendV", err) {
			return
		}
	}
}

func receiveStream(l *reusedConn, s *sock.Socket, marker int, count *atomic.Int64) {
	buf, want := make([]byte, 900), make([]byte, 900)
	for at := 0; ; {
		n, err := s.Recv(buf)
		fillKeystream(want[:n], marker, at)
		if !bytes.Equal(buf[:n], want[:n]) {
			l.t.Errorf("received data of another socket at %d", at)
			return
		}
		at += n
		if count.Add(int64(n)); l.closed("Recv", err) {
			return
		}
	}
}

// sendNumbered sends datagrams that contain the marker and a number.
func sendNumbered(l *reusedConn, s *sock.Socket, marker int) {
	msgs := buffers(sock.MaxBatch, 16)
	for at := 0; ; {
		for i := range msgs {
			binary.LittleEndian.PutUint64(msgs[i].Buf, uint64(marker))
			binary.LittleEndian.PutUint64(msgs[i].Buf[8:], uint64(at+i))
		}
		n, err := s.SendBatch(msgs)
		if at += n; l.closed("SendBatch", err) {
			return
		}
	}
}

func receiveNumbered(l *reusedConn, s *sock.Socket, marker int, count *atomic.Int64) {
	msgs := buffers(sock.MaxBatch, 32)
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
		if count.Add(int64(n)); l.closed("RecvBatch", err) {
			return
		}
	}
}

// run uses the sockets until both have received data, and closes them while they are in use.
func (l *reusedConn) run() {
	var all sync.WaitGroup
	var received, closed [2]atomic.Int64
	ends := []*sock.Socket{l.a, l.b}
	for i, s := range ends {
		all.Go(func() { l.send(l, s, l.marker+i) })
		all.Go(func() { l.receive(l, s, l.marker+1-i, &received[i]) })
		all.Go(func() {
			for !l.closed("Err", s.Err()) {
				s.LocalAddr()
			}
		})
	}
	for end := time.Now().Add(timeout); received[0].Load() < 50 || received[1].Load() < 50; runtime.Gosched() {
		if time.Now().After(end) {
			l.t.Error("timed out waiting for data")
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

// A call on a socket that is closed concurrently never operates on another socket with the same number. It returns an
// expected error, and no descriptor is left behind.
func TestConcurrentCloseFDReuse(t *testing.T) {
	handles.NoneLeft(t, "")
	// With more threads than processors, the system preempts threads at any point.
	was := runtime.GOMAXPROCS(8)
	t.Cleanup(func() { runtime.GOMAXPROCS(was) })

	listener := listen(t, sock.Loopback)
	var connecting sync.Mutex
	open := func(n int) (l *reusedConn, err error) {
		l = &reusedConn{t: t, marker: 2 * n, send: sendStream, receive: receiveStream}
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
				if l.run(); t.Failed() {
					return
				}
			}
		})
	}
	all.Wait()
	if reused.Load() == 0 && !t.Failed() {
		t.Error("no descriptor number was reused")
	}
}

// connectTo makes a connection that is reset if the client closes first.
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

// Calls on a closed Socket do not affect a connection that is accepted into it concurrently.
func TestConcurrentAcceptInto(t *testing.T) {
	handles.NoneLeft(t, "")
	l := listen(t, sock.Loopback)
	var s sock.Socket
	var stop atomic.Bool
	var all sync.WaitGroup
	for _, name := range []string{"Recv", "Send", "Err", "RecvBatch"} {
		all.Go(func() {
			for !stop.Load() {
				if err := calls[name].call(&s); err != nil && err != sock.ErrWouldBlock && !isExpected(err) {
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}
	t.Cleanup(func() { stop.Store(true); all.Wait() })
	for range 200 {
		c := connect(t, l.LocalAddr())
		waitPoll(t, l, in)
		err, end := l.AcceptInto(&s), time.Now().Add(timeout)
		for ; errors.As(err, new(*sock.Error)) && time.Now().Before(end); err = l.AcceptInto(&s) {
			runtime.Gosched() // a call on the previous connection is still in progress
		}
		if err != nil {
			t.Fatalf("the connection is lost: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("the socket was closed by another call: %v", err)
		}
		c.Close()
	}
}
