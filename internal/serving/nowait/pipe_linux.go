package nowait

import (
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A Pipe is one of the kernel's, through which the kernel moves bytes between two sockets (splice).
// The program does not see the bytes, and does not copy them.
type Pipe struct {
	pipeEnds
	n       int // bytes in it
	err     error
	moved   int
	wait    bool // drain waits
	fill    func(fd uintptr) bool
	drain   func(fd uintptr) bool
	cleanup runtime.Cleanup
}

type pipeEnds struct{ out, in int }

func (e pipeEnds) close() {
	unix.Close(e.out)
	unix.Close(e.in)
}

const (
	// maxPipes bounds the pipes of the process that are in use.
	maxPipes = 256
	// maxFill is the size of a pipe, and bounds the bytes in it. The system may give a user without
	// privileges smaller ones, which hold less.
	maxFill = 1 << 20
)

var (
	pipesInUse atomic.Int32
	pipes      sync.Pool // of *Pipe, empty
)

// TakePipe returns an empty pipe, or nil if there is none. Release must follow.
func TakePipe() *Pipe {
	if pipesInUse.Add(1) > maxPipes {
		pipesInUse.Add(-1)
		return nil
	}
	if p, ok := pipes.Get().(*Pipe); ok {
		return p
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		pipesInUse.Add(-1)
		return nil
	}
	unix.FcntlInt(uintptr(ends[0]), unix.F_SETPIPE_SZ, maxFill)
	p := &Pipe{pipeEnds: pipeEnds{ends[0], ends[1]}}
	p.fill = func(fd uintptr) bool { return p.fillFrom(int(fd)) }
	p.drain = func(fd uintptr) bool { return p.drainTo(int(fd)) }
	p.cleanup = runtime.AddCleanup(p, pipeEnds.close, p.pipeEnds) // the pool drops pipes
	return p
}

// Release ends the use of a pipe. Bytes that are in it are lost.
func (p *Pipe) Release() {
	pipesInUse.Add(-1)
	if p.n == 0 {
		pipes.Put(p)
		return
	}
	p.cleanup.Stop()
	p.close()
}

// Len returns the number of bytes in the pipe.
func (p *Pipe) Len() int { return p.n }

// Fill moves what there is from a socket into the pipe, which must be empty. It waits until there
// is something, or the read deadline. It returns 0 and no error if the kernel cannot do that with
// the socket.
func (p *Pipe) Fill(s Socket) (int, error) {
	n, err := p.end(s.conn.Read(p.fill))
	p.n = n
	return n, err
}

// Drain moves what the system takes from the pipe to a socket. With wait it waits until the pipe is
// empty, or the write deadline.
func (p *Pipe) Drain(s Socket, wait bool) (n int, err error) {
	p.wait = wait
	for p.n > 0 && err == nil {
		var m int
		if m, err = p.end(s.conn.Write(p.drain)); m == 0 {
			break
		}
		n += m
		p.n -= m
	}
	return n, err
}

// maxFillTries bounds the attempts of fillFrom while the socket is readable and no call gets a byte.
const maxFillTries = 10

// fillFrom moves bytes from a socket into the pipe, and does not wait. It returns false to be called
// again when the socket is ready.
//
// If splice(2) moves nothing, bytes may still be queued. The kernel does not splice past an urgent
// byte: it returns 0, as at the end of the stream, or EAGAIN, and Go's poller, which reports edges,
// reports what is queued behind that byte no more. A read skips the byte, so a read decides. The read
// itself returns EAGAIN there while a signal is pending, and then both calls are repeated.
func (p *Pipe) fillFrom(fd int) bool {
	for range maxFillTries {
		call := "splice"
		n, err := splice(fd, p.in, maxFill)
		switch {
		case n > 0:
		case err == unix.EAGAIN && pollOnce(fd, unix.POLLIN) == 0:
			return false
		case err == nil, err == unix.EAGAIN:
			call = "read"
			n, err = p.receive(fd)
		}
		switch err {
		case unix.EAGAIN:
			continue
		case nil, unix.EINVAL:
			p.moved = n
		case io.EOF:
			p.err = err
		default:
			p.err = os.NewSyscallError(call, err)
		}
		return true
	}
	return false
}

// receive reads once, and writes that to the pipe, which is empty and so has room.
func (p *Pipe) receive(fd int) (int, error) {
	var b [512]byte
	n, err := read(fd, b[:])
	switch {
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return unix.Write(p.in, b[:n])
}

// drainTo moves bytes from the pipe, which is not empty, to a socket, and does not wait. It returns
// false to be called again when the socket is ready.
func (p *Pipe) drainTo(fd int) bool {
	n, err := splice(p.out, fd, p.n)
	switch {
	case err == unix.EAGAIN:
		return !p.wait
	case err != nil:
		p.err = os.NewSyscallError("splice", err)
	case n == 0:
		p.err = io.ErrNoProgress
	}
	p.moved = n
	return true
}

func splice(from, to, most int) (int, error) {
	for {
		n, err := unix.Splice(from, nil, to, nil, most, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if err != unix.EINTR {
			return max(int(n), 0), err
		}
	}
}

// end returns the result of a call. err is that of the RawConn.
func (p *Pipe) end(err error) (int, error) {
	n := p.moved
	if err == nil {
		err = p.err
	}
	p.moved, p.err = 0, nil
	return n, err
}
