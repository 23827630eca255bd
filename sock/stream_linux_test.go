package sock_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/signal"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/test/qemu"
	"github.com/socknotify/socknotify/sock"
)

// maxIO is the maximum number of bytes that one receive or send on a stream transfers.
const maxIO = 256 << 10

func TestRecv(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		a, b := k.pair(t)
		buf := make([]byte, 8)
		if n, err := b.Recv(buf); n != 0 || err != sock.ErrWouldBlock {
			t.Errorf("nothing is there: %d, %v", n, err)
		}
		if n, err := b.Recv(nil); n != 0 || err != nil {
			t.Errorf("into nothing: %d, %v", n, err)
		}
		send(t, a, "0123456789")
		waitPoll(t, b, in)
		if n, err := b.Recv(buf[:0]); n != 0 || err != nil { // does not consume anything
			t.Errorf("into nothing: %d, %v", n, err)
		}
		wantReceive(t, b, 4, "0123")
		n, err := b.Recv(buf)
		if k.stream && (string(buf[:n]) != "456789" || err != nil) {
			t.Errorf("what is left of the stream: %q, %v", buf[:n], err)
		}
		if !k.stream && err != sock.ErrWouldBlock {
			t.Errorf("what is left of the datagram: %q, %v", buf[:n], err)
		}
	})
}

// io.EOF is returned again for a stream. An empty datagram is received once.
func TestRecvEmpty(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		a, b := k.pair(t)
		send(t, a, "x")
		if n, err := a.Send(nil); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		send(t, a, "y")
		if k.stream {
			waitReadable(t, b, 2)
			wantReceive(t, b, 8, "xy")
			a.Close()
			for range 3 {
				waitPoll(t, b, in)
				if n, err := b.Recv(make([]byte, 8)); n != 0 || err != io.EOF {
					t.Errorf("at the end: %d, %v", n, err)
				}
			}
			return
		}
		for _, want := range []string{"x", "", "y"} {
			wantReceive(t, b, 8, want)
		}
	})
}

func TestSendFails(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		a, b := k.pair(t)
		if !k.stream {
			n, err := a.Send(make([]byte, 4<<20))
			if n != 0 {
				t.Errorf("sent %d bytes of a datagram that is too large", n)
			}
			wantError(t, err, "send", a.Handle(), unix.EMSGSIZE)
			if k.name != "unixgram" {
				return
			}
		}
		b.Close()
		if k.stream {
			waitPoll(t, a, ended)
		}
		var errs [3]error
		for end := 0; errs[0] == nil && end < 1000; end++ { // with TCP, the first sends may still succeed
			_, errs[0] = a.Send([]byte("x"))
		}
		_, errs[1] = a.Send([]byte("x"))
		_, errs[2] = a.SendV([][]byte{{'x'}})
		for i, op := range []string{"send", "send", "sendmsg"} {
			wantError(t, errs[i], op, a.Handle(), nil)
		}
	})
}

// Sending on a broken stream returns an error and raises no SIGPIPE. Go ignores the signal unless the program asks
// for it.
func TestSendNoSignal(t *testing.T) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGPIPE, unix.SIGWINCH)
	defer signal.Stop(signals)
	forEachStream(t, func(t *testing.T, k kind) {
		a, _ := k.pair(t)
		must(t, a.Shutdown(sock.ShutWrite))
		_, err := a.Send([]byte("x"))
		_, err2 := a.SendV([][]byte{{'x'}})
		_, err3 := a.SendBatch([]sock.Message{{Buf: []byte("x")}})
		err4 := a.SendTo([]byte("x"), a.RemoteAddr())
		for _, err := range []error{err, err2, err3} {
			if !errors.Is(err, unix.EPIPE) {
				t.Error(err)
			}
		}
		if err4 == nil {
			t.Error("SendTo succeeded")
		}
		// If two signals are pending, Go delivers the one with the lower number first.
		must(t, unix.Kill(os.Getpid(), unix.SIGWINCH))
		if got := <-signals; got != unix.SIGWINCH {
			t.Errorf("%v", got)
			<-signals
		}
	})
}

// One call transfers at most 256 KiB of a stream.
func TestMaxIO(t *testing.T) {
	for name, call := range map[string]func(s *sock.Socket, b []byte) (int, error){
		"Send":                    (*sock.Socket).Send,
		"SendV":                   func(s *sock.Socket, b []byte) (int, error) { return s.SendV([][]byte{b}) },
		"SendV of two":            func(s *sock.Socket, b []byte) (int, error) { return s.SendV([][]byte{b[:200<<10], b[200<<10:]}) },
		"SendV of two, one is it": func(s *sock.Socket, b []byte) (int, error) { return s.SendV([][]byte{b[:maxIO], b[maxIO:]}) },
	} {
		a, b := unixPair(t, false)
		must(t, a.SetWriteBuffer(1<<20))
		data := keystream(1, 0, 380<<10) // fits into the system's default buffers
		sent, err := call(a, data)
		if sent != maxIO || err != nil {
			t.Errorf("%s = %d, %v", name, sent, err)
			continue
		}
		for sent < len(data) {
			n, err := a.Send(data[sent:])
			if err == sock.ErrWouldBlock {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			sent += n
		}
		buf := make([]byte, 1<<20)
		if n, err := b.Recv(buf); n != min(sent, maxIO) || err != nil || !bytes.Equal(buf[:n], data[:n]) {
			t.Errorf("Recv = %d, %v of %d", n, err, sent)
		}
		if n, err := b.Recv(buf); sent > maxIO && (err != nil || !bytes.Equal(buf[:n], data[maxIO:sent])) {
			t.Errorf("and of the rest %d, %v", n, err)
		}
	}
}

func TestSendV(t *testing.T) {
	// many returns n buffers of one byte, each after an empty buffer.
	many := func(n int) (bufs [][]byte, all string) {
		for i := range n {
			bufs = append(bufs, nil, []byte{byte('a' + i%26)})
			all += string(rune('a' + i%26))
		}
		return append(bufs, []byte{}), all
	}
	forEachKind(t, func(t *testing.T, k kind) {
		for _, n := range []int{1, 2, 63, 64, 65, 200} {
			a, b := k.pair(t)
			bufs, all := many(n)
			sent, err := a.SendV(bufs)
			if !k.stream && n > 64 {
				wantError(t, err, "sendmsg", a.Handle(), unix.EMSGSIZE)
				if _, err := b.Recv(make([]byte, 1)); sent != 0 || err != sock.ErrWouldBlock {
					t.Errorf("%d buffers: a part of the message was sent: %d, %v", n, sent, err)
				}
				continue
			}
			if sent != min(n, 64) || err != nil {
				t.Errorf("%d buffers: %d, %v", n, sent, err)
				continue
			}
			waitReadable(t, b, sent)
			if got := receive(t, b, 256); got != all[:sent] {
				t.Errorf("%d buffers: %q", n, got)
			}
		}
		a, b := k.pair(t)
		for _, bufs := range [][][]byte{nil, {}, {nil, {}}} {
			if n, err := a.SendV(bufs); n != 0 || err != nil {
				t.Errorf("%v: %d, %v", bufs, n, err)
			}
			if k.stream {
				continue
			}
			wantReceive(t, b, 8, "")
		}
		if _, err := b.Recv(make([]byte, 1)); err != sock.ErrWouldBlock {
			t.Errorf("then %v", err)
		}
	})
}

func TestShutdown(t *testing.T) {
	forEachStream(t, func(t *testing.T, k kind) {
		for _, how := range []sock.How{sock.ShutRead, sock.ShutWrite, sock.ShutBoth} {
			a, b := k.pair(t)
			send(t, a, "before")
			must(t, a.Shutdown(how))
			buf := make([]byte, 8)
			waitReadable(t, b, 6)
			if got := receive(t, b, 8); got != "before" {
				t.Errorf("%d: %q", how, got)
			}
			if _, err := a.Recv(buf); how != sock.ShutWrite && err != io.EOF || how == sock.ShutWrite && err != sock.ErrWouldBlock {
				t.Errorf("%d: own receive: %v", how, err)
			}
			if how == sock.ShutRead {
				send(t, a, "after")
				wantReceive(t, b, 8, "after")
				continue
			}
			_, err := a.Send(buf)
			wantError(t, err, "send", a.Handle(), unix.EPIPE)
			waitPoll(t, b, ended)
			if _, err := b.Recv(buf); err != io.EOF {
				t.Errorf("%d: the peer's receive: %v", how, err)
			}
			if how == sock.ShutWrite {
				send(t, b, "back")
				wantReceive(t, a, 8, "back")
			}
		}
		a, _ := k.pair(t)
		wantError(t, a.Shutdown(7), "shutdown", a.Handle(), unix.EINVAL)
	})
	s := bound(t, sock.TCP4, sock.Loopback)
	wantError(t, s.Shutdown(sock.ShutBoth), "shutdown", s.Handle(), unix.ENOTCONN)
}

// The pending error is returned once, by Err or by a receive.
func TestErrOnce(t *testing.T) {
	for _, first := range []string{"Err", "Recv"} {
		a, b := tcpOn(t, sock.Loopback)
		if err := b.Err(); err != nil {
			t.Errorf("before: %v", err)
		}
		a.SetLinger(0)
		a.Close()
		waitPoll(t, b, broken)
		for i, want := range []error{unix.ECONNRESET, nil} {
			var err error
			if first == "Err" {
				err = b.Err()
			} else if _, err = b.Recv(make([]byte, 1)); err == io.EOF {
				err = nil
			}
			if !qemu.Is(err, want) {
				t.Errorf("%s, %d: %v, want %v", first, i, err, want)
			}
		}
		if err := b.Err(); err != nil {
			t.Errorf("after %s: %v", first, err)
		}
	}
}
