//go:build unix

package stress

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/sockettest"
	"github.com/socknotify/socknotify/sock"
)

// A pair is one connection.
type pair struct {
	ends [2]*end
	// aborted is set before anything happens that may lose bytes or abort the connection.
	aborted atomic.Bool
	dead    atomic.Int32 // ends that are closed
	tcp     bool
	bySock  bool // used and registered as sockets that vouch for themselves; otherwise as descriptors
	edge    bool // registered edge one-shot, and always drained; otherwise level one-shot
}

// An end is one end of a connection. It belongs to the holder of the notification of its context, and
// passes on through the port alone: the race detector checks that that is enough (C8).
type end struct {
	pair  *pair
	other *end
	id    uint64                  // of the stream that it sends
	ctx   atomic.Pointer[context] // the latest
	recv  uint64                  // how much of the other's stream was received
	turns uint64

	mu      sync.Mutex // over sending, which the kicker does too
	fd      int        // written under mu; -1 when closed
	sock    *sock.Socket
	sent    uint64
	blocked bool // the owner's last send would have blocked
	shut    bool // no more is sent

	// For the watchdog.
	received atomic.Uint64
	gone     atomic.Bool
}

// A context is the key of one registration.
type context struct {
	end   *end
	state atomic.Int32
	// closes makes the goroutine that dequeues EventRemove close the end.
	closes bool
}

// The states of a context.
const (
	armed    int32 = iota // enabled: its notification may come
	held                  // its notification was dequeued: nothing may come
	removing              // OpRemove was given: EventRemove may come
	freed                 // nothing may come
)

func (c *context) String() string {
	return [...]string{"armed", "held", "being removed", "freed"}[c.state.Load()]
}

func (e *end) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := fmt.Sprintf("stream %d, descriptor %d: sent %d, received %d, tcp %v, edge %v, aborted %v, shut %v, blocked %v, context %v",
		e.id, e.fd, e.sent, e.received.Load(), e.pair.tcp, e.pair.edge, e.pair.aborted.Load(), e.shut, e.blocked, e.ctx.Load())
	if e.fd >= 0 {
		s += fmt.Sprintf(", the system says %#b", sockettest.Now(e.fd))
	}
	return s
}

// A hub is where TCP pairs come from.
type hub struct {
	mu sync.Mutex
	fd int
	at unix.Sockaddr
}

func newHub() (*hub, error) {
	fd, err := sockettest.New(unix.AF_INET, unix.SOCK_STREAM)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	h := &hub{fd: fd}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(fd, 16); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	h.at, err = unix.Getsockname(fd)
	return h, os.NewSyscallError("getsockname", err)
}

// connect makes a TCP connection. Its addresses are spread, because closed connections use up ports.
func (h *hub) connect() (fds [2]int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fd, err := sockettest.New(unix.AF_INET, unix.SOCK_STREAM)
	if err != nil {
		return fds, os.NewSyscallError("socket", err)
	}
	err = sockettest.BindTo(uintptr(fd))
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: sockettest.Source()})
	}
	if err == nil {
		if err = unix.Connect(fd, h.at); err == unix.EINPROGRESS {
			err = nil
		}
	}
	if err != nil {
		unix.Close(fd)
		return fds, os.NewSyscallError("connect", err)
	}
	peer, err := sockettest.Accept(h.fd)
	for end := time.Now().Add(patience); err == unix.EAGAIN && time.Now().Before(end); await.Pause(20 * time.Microsecond) {
		peer, err = sockettest.Accept(h.fd)
	}
	if err != nil {
		unix.Close(fd)
		return fds, os.NewSyscallError("accept", err)
	}
	return [2]int{fd, peer}, nil
}

func (s *stressTest) newPair(rng *rand.Rand) (*pair, error) {
	p := &pair{tcp: rng.IntN(4) != 0, bySock: rng.IntN(2) == 0, edge: rng.IntN(4) == 0}
	var fds [2]int
	var err error
	if p.tcp {
		fds, err = s.hub.connect()
	} else {
		fds, err = sockettest.UnixPair(unix.SOCK_STREAM)
	}
	if err != nil {
		return nil, fmt.Errorf("new connection: %w", err)
	}
	small := rng.IntN(2) == 0
	for i, fd := range fds {
		if small {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 8<<10)
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<10)
		}
		if p.tcp {
			// Urgent bytes stay in the stream, and end a receive early.
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1)
		}
		e := &end{pair: p, id: s.ids.Add(1), fd: fd}
		if p.bySock {
			if e.sock, err = sock.Adopt(uintptr(fd), sock.RefuseBlocking); err != nil {
				return nil, err
			}
		}
		e.ctx.Store(&context{end: e})
		p.ends[i] = e
	}
	p.ends[0].other, p.ends[1].other = p.ends[1], p.ends[0]
	s.enlist(p)
	return p, nil
}

// filter is what an end must hear of.
func (e *end) filter() socknotify.Events {
	f := socknotify.EventIn | socknotify.EventHangup
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.blocked {
		f |= socknotify.EventOut
	}
	return f
}

// enable is the entry that arms an end's context.
func (e *end) enable(drained bool) socknotify.Registration[*context] {
	t := socknotify.TriggerLevel | socknotify.TriggerOneShot
	if e.pair.edge {
		t = socknotify.TriggerEdge | socknotify.TriggerOneShot
	}
	c := e.ctx.Load()
	r := socknotify.Registration[*context]{Key: c, Filter: e.filter(), Op: socknotify.OpEnable, Trigger: t}
	if e.pair.bySock {
		r.Conn = e.sock
	} else {
		r.Handle, r.Drained = uintptr(e.fd), drained
	}
	c.state.Store(armed)
	return r
}
