package sock

import (
	"io"
	"os"

	"github.com/socknotify/socknotify/internal/kernel/fdstate"
)

const (
	dirRecv = fdstate.Recv
	dirSend = fdstate.Send

	// maxIO is the maximum number of bytes that one receive or send transfers. These calls do not notify Go's
	// scheduler, which is acceptable only because they are short.
	maxIO = 256 << 10
)

// Recv receives up to 256 KiB of a stream, or one datagram, into b. It returns ErrWouldBlock if there is nothing to
// receive, and io.EOF at the end of a stream. A datagram may be empty; if it is longer than b, the rest is lost. If
// b is empty, Recv returns 0 and nil.
func (s *Socket) Recv(b []byte) (int, error) {
	if _, ok := s.fd.Use(); !ok {
		return 0, closed("recv")
	}
	n, err := s.recv(b)
	s.fd.Done()
	return n, err
}

// recv is Recv without adding a reference.
func (s *Socket) recv(b []byte) (int, error) {
	b = b[:min(len(b), maxIO)]
	if len(b) == 0 {
		return 0, nil
	}
	h := s.fd.Handle()
	generation := s.fd.Generation()
	n, e := recvOnce(h, b)
	if n == 0 || ioFailed(e) {
		return s.finishRecvSlow(h, b, generation, e)
	}
	s.recordShortRecv(b, generation, int(n))
	return int(n), nil
}

// recordShortRecv records that a receive of n bytes into b has drained the socket, if n is short enough to prove that.
func (s *Socket) recordShortRecv(b []byte, generation uint64, n int) {
	if n < len(b) && s.is(kindTCP) && fdstate.ShortDrains(generation) {
		s.fd.Blocked(dirRecv, generation)
	}
}

// finishRecvSlow returns the result of a receive that returned no bytes or failed.
func (s *Socket) finishRecvSlow(h uintptr, b []byte, generation uint64, e ioError) (int, error) {
	n, err := 0, error(nil)
	if ioFailed(e) {
		n, err = recvAgain(h, b, e)
	}
	switch {
	case err == nil && n > 0:
		return n, nil
	case err == ErrWouldBlock && s.is(kindTCP) && !fdstate.ShortDrains(generation):
		s.fd.MaybeBlocked(dirRecv) // with urgent data, an interrupted receive returns EAGAIN on Linux too
		return 0, err
	case err != nil:
		return s.finish("recv", h, dirRecv, generation, 0, err)
	case s.is(kindStream):
		return 0, io.EOF
	}
	return 0, nil
}

// Send sends up to 256 KiB of b on a stream, or b as one datagram. It returns the number of bytes that the system
// accepted, which may be less than len(b). If the system accepted none, Send returns ErrWouldBlock.
func (s *Socket) Send(b []byte) (int, error) {
	if _, ok := s.fd.Use(); !ok {
		return 0, closed("send")
	}
	n, err := s.send(b)
	s.fd.Done()
	return n, err
}

// send is Send without adding a reference. A send runs much code in the kernel, which overwrites the processor's
// return stack: every return after the system call is mispredicted. So there should be few stack frames between a
// send loop and the system call, and sendOnce must be inlined.
func (s *Socket) send(b []byte) (int, error) {
	if s.is(kindStream) {
		b = b[:min(len(b), maxIO)]
		if len(b) == 0 {
			return 0, nil
		}
	}
	h := s.fd.Handle()
	generation := s.fd.Generation()
	n, e := sendOnce(h, b)
	if ioFailed(e) {
		return s.finishSendSlow(h, b, generation, e)
	}
	return int(n), nil
}

// finishSendSlow returns the result of a send that failed.
func (s *Socket) finishSendSlow(h uintptr, b []byte, generation uint64, e ioError) (int, error) {
	n, err := sendAgain(h, b, e)
	return s.finish("send", h, dirSend, generation, n, err)
}

// SendV sends several buffers as if they were one, with one system call. On a stream it sends at most 256 KiB and 64
// buffers.
func (s *Socket) SendV(bufs [][]byte) (int, error) {
	h, ok := s.fd.Use()
	if !ok {
		return 0, closed("sendmsg")
	}
	defer s.fd.Done()
	return s.sendV(h, bufs)
}

func (s *Socket) sendV(h uintptr, bufs [][]byte) (int, error) {
	generation := s.fd.Generation()
	n, err := sysSendV(h, bufs, s.is(kindStream))
	return s.finish("sendmsg", h, dirSend, generation, n, err)
}

// SendFile sends up to n bytes of a file, but at most 1 MiB, starting at an offset. It returns the number of bytes
// that the system accepted. It returns io.EOF if the file ends at or before the offset, and 0 and nil if n is 0 or
// less. If the system supports it, the bytes are not copied through the program. The position of the file does not
// change. Reading the file may block.
func (s *Socket) SendFile(f *os.File, offset int64, n int) (int, error) {
	h, ok := s.fd.Use()
	if !ok {
		return 0, closed("sendfile")
	}
	defer s.fd.Done()
	if n <= 0 {
		return 0, nil
	}
	generation := s.fd.Generation()
	sent, err := sysSendFile(h, f, offset, min(n, maxSendFile))
	if sent == 0 && err == nil {
		return 0, io.EOF
	}
	return s.finish("sendfile", h, dirSend, generation, sent, err)
}

// maxSendFile is the maximum number of bytes of one SendFile, so that one socket does not delay the others of a worker.
const maxSendFile = 1 << 20

// finish returns the result of a call that sends or receives.
func (s *Socket) finish(op string, h uintptr, d fdstate.Dir, generation uint64, n int, err error) (
	int, error) {
	switch {
	case err == nil:
		return n, nil
	case err == ErrWouldBlock:
		s.fd.Blocked(d, generation)
		return 0, err
	}
	return 0, &Error{op, h, err}
}

// How is the argument of Shutdown.
type How int

// The directions of Shutdown.
const (
	ShutRead How = iota
	ShutWrite
	ShutBoth
)

// Shutdown shuts down one direction of a connection, or both. After shutting down the sending direction, the peer
// receives the end of the stream. After shutting down the receiving direction of a Unix datagram socket, Recv
// returns ErrWouldBlock on Linux, and 0 and nil on NetBSD.
func (s *Socket) Shutdown(how How) error {
	return s.do("shutdown", func(h uintptr) error {
		err := sysShutdown(h, how)
		if err == nil && how != ShutRead {
			s.fd.ShutSend()
		}
		return err
	})
}

// Err returns and clears the pending error of the socket (SO_ERROR). It returns nil if there is none. A pending
// error is returned as it is, without an *[Error].
func (s *Socket) Err() error {
	h, ok := s.fd.Use()
	if !ok {
		return closed("getsockopt")
	}
	defer s.fd.Done()
	return sysErr(h)
}
