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
	wait    bool
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
	p.fill = func(fd uintptr) bool { return p.try(int(fd), p.in, maxFill) }
	p.drain = func(fd uintptr) bool { return p.try(p.out, int(fd), p.n) }
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
	p.wait = true
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

// try makes one system call, and does not wait.
func (p *Pipe) try(from, to, most int) bool {
	for {
		n, err := unix.Splice(from, nil, to, nil, most, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return !p.wait
		case err == unix.EINVAL:
		case err != nil:
			p.err = os.NewSyscallError("splice", err)
		case n == 0:
			p.err = io.EOF
		default:
			p.moved = int(n)
		}
		return true
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
