package sock

import (
	"io"
	"os"

	"github.com/socknotify/socknotify/internal/fdstate"
)

const (
	dirRecv = fdstate.Recv
	dirSend = fdstate.Send

	// maxIO caps what one receive or send moves. They go around Go's scheduler, which is right only
	// while they are short.
	maxIO = 256 << 10
)

// Recv receives into b: io.EOF at end of stream, ErrWouldBlock where there is nothing yet. It moves up
// to 256 KiB, or one datagram, which may be empty and of which what does not fit into b is lost. Without room
// in b it returns 0 and nil, whatever there is.
func (s *Socket) Recv(b []byte) (int, error) {
	if _, ok := s.fd.Use(); !ok {
		return 0, closed("recv")
	}
	n, err := s.recv(b)
	s.fd.Done()
	return n, err
}

// recv is Recv for a socket in use.
func (s *Socket) recv(b []byte) (int, error) {
	b = b[:min(len(b), maxIO)]
	if len(b) == 0 {
		return 0, nil
	}
	h := s.fd.Handle()
	turn := s.fd.Turn()
	n, e := recvOnce(h, b)
	return s.received(h, b, turn, n, e)
}

// received is what has come of a receive.
func (s *Socket) received(h uintptr, b []byte, turn uint64, n ioCount, e ioError) (int, error) {
	if n == 0 || ioFailed(e) {
		return s.unreceived(h, b, turn, e)
	}
	s.took(b, turn, int(n))
	return int(n), nil
}

// took is what follows from a receive into b that brought n bytes: short of the buffer, it may have drained the
// socket.
func (s *Socket) took(b []byte, turn uint64, n int) {
	if n < len(b) && s.is(kindTCP) && fdstate.ShortBlocks(turn) {
		s.fd.Blocked(dirRecv, turn)
	}
}

// unreceived goes on where the first attempt brought nothing.
func (s *Socket) unreceived(h uintptr, b []byte, turn uint64, e ioError) (int, error) {
	n, err := 0, error(nil)
	if ioFailed(e) {
		n, err = recvAgain(h, b, e)
	}
	switch {
	case err == nil && n > 0:
		return n, nil
	case err == ErrWouldBlock && s.is(kindTCP) && !fdstate.ShortBlocks(turn):
		s.fd.Doubtful(dirRecv) // with urgent data about, a signal makes Linux answer so too
		return 0, err
	case err == ErrWouldBlock:
		s.fd.Blocked(dirRecv, turn)
		return 0, err
	case err != nil:
		return 0, &Error{"recv", h, err}
	case s.is(kindStream):
		return 0, io.EOF
	}
	return 0, nil
}

// Send sends from b and returns how much the system took, up to 256 KiB of a stream. Less than all of b
// is no error; ErrWouldBlock is for nothing at all.
func (s *Socket) Send(b []byte) (int, error) {
	if _, ok := s.fd.Use(); !ok {
		return 0, closed("send")
	}
	n, err := s.send(b)
	s.fd.Done()
	return n, err
}

// send is Send for a socket in use. A send goes deep into the system, delivers to the peer perhaps, and
// spoils the processor's memory of who called whom: each return after it is mispredicted. So what is
// between the call and whoever sends in a loop is worth being few frames.
func (s *Socket) send(b []byte) (int, error) {
	if s.is(kindStream) {
		b = b[:min(len(b), maxIO)]
		if len(b) == 0 {
			return 0, nil
		}
	}
	h := s.fd.Handle()
	turn := s.fd.Turn()
	n, e := sendOnce(h, b)
	if ioFailed(e) {
		return s.unsent(h, b, turn, e)
	}
	return int(n), nil
}

// unsent goes on where the first attempt failed.
func (s *Socket) unsent(h uintptr, b []byte, turn uint64, e ioError) (int, error) {
	n, err := sendAgain(h, b, e)
	return s.sent("send", h, turn, n, err)
}

// SendV sends from several buffers, as if they were one (writev), up to 256 KiB and 64 buffers of a stream
// in all.
func (s *Socket) SendV(bufs [][]byte) (int, error) {
	h, ok := s.fd.Use()
	if !ok {
		return 0, closed("sendmsg")
	}
	defer s.fd.Done()
	return s.sendV(h, bufs)
}

func (s *Socket) sendV(h uintptr, bufs [][]byte) (int, error) {
	turn := s.fd.Turn()
	n, err := sysSendV(h, bufs, s.is(kindStream))
	return s.sent("sendmsg", h, turn, n, err)
}

// SendFile sends up to n bytes of a file from an offset, 1 MiB at most, without a copy through the program where the
// system can. The file's own position stays. It returns how much the system took: io.EOF where the file
// ends at the offset or before. With n of 0 or less it returns 0 and nil. Reading the file may block.
func (s *Socket) SendFile(f *os.File, offset int64, n int) (int, error) {
	h, ok := s.fd.Use()
	if !ok {
		return 0, closed("sendfile")
	}
	defer s.fd.Done()
	if n <= 0 {
		return 0, nil
	}
	turn := s.fd.Turn()
	sent, err := sysSendFile(h, f, offset, min(n, maxSendFile))
	if sent == 0 && err == nil {
		return 0, io.EOF
	}
	return s.sent("sendfile", h, turn, sent, err)
}

// maxSendFile bounds one SendFile, so that one socket does not keep a worker from the others.
const maxSendFile = 1 << 20

// sent is how a send ended.
func (s *Socket) sent(op string, h uintptr, turn uint64, n int, err error) (int, error) {
	switch {
	case err == nil:
		return n, nil
	case err == ErrWouldBlock:
		s.fd.Blocked(dirSend, turn)
		return 0, err
	}
	return 0, &Error{op, h, err}
}

// How names the directions of Shutdown.
type How int

// The directions.
const (
	ShutRead How = iota
	ShutWrite
	ShutBoth
)

// Shutdown shuts one direction of a connection, or both. The peer sees the end of the stream where
// sending was shut. A Unix datagram socket that is shut for receiving has nothing to receive on Linux
// (ErrWouldBlock); on NetBSD it receives nothing, without an error, each time.
func (s *Socket) Shutdown(how How) error {
	return s.do("shutdown", func(h uintptr) error { return sysShutdown(h, how) })
}

// Err returns the pending error of the socket, once: reading it clears it (SO_ERROR). It is the system's
// error as it is; nil where there is none.
func (s *Socket) Err() error {
	h, ok := s.fd.Use()
	if !ok {
		return closed("getsockopt")
	}
	defer s.fd.Done()
	return sysErr(h)
}
