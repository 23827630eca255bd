//go:build unix

// Package poll is the backend on poll(2). It is the portable fallback, and the reference for other backends
// in tests.
//
// A report suppresses its handle until the next Set (Edges is false). poll(2) knows descriptor numbers, not
// sockets, so before each report the entry is checked to still name its socket.
//
// The reliability of that check and the detail of the reports differ between systems:
//
//   - Linux does not use an inode number twice in a row, and poll(2) reports all conditions.
//   - Elsewhere poll(2) reports an error, and mostly the end of a stream, as input. So each report of input
//     needs a peek at the socket, which allocates if there is a sender's address.
//   - The BSDs and macOS do not number sockets. A kqueue identifies them instead, because the kernel removes
//     a number from it when the number is closed. The kqueue also finds conditions behind unread data.
//   - illumos and Solaris compute a number of 16 bits from the socket's address, which the next socket may
//     get. For AIX it is not known. On these systems, a number that was closed without OpRemove or Close of
//     package sock, and used again, can continue to report to the old key. An error behind unread data is
//     found after the data was received. On illumos the end of the peer's direction alone is found at once,
//     on the others after the data too.
//   - A condition that persists and was reported already is polled again at intervals that grow to 250 ms.
//     Except on Linux, that includes unread data that an edge has reported; a condition behind the data is
//     reported with that delay.
package poll

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/unixsock"
)

// Poller implements backend.Poller on an array of pollfds.
type Poller struct {
	waker unixsock.Waker // entry 0 of the array
	woken atomic.Bool
	known identities

	mu sync.Mutex
	// fds is the array for poll(2). A suppressed entry has its number complemented, and poll(2) skips it.
	fds []unix.PollFd
	// The other parts of an entry are in arrays of their own, because a struct would be padded.
	tokens  []uint64
	ids     []identity
	states  []state
	index   []int32 // handle -> position in fds; 0 is none
	next    int     // the entry that was seen last; the next scan continues after it, so that no entry starves
	unseen  int     // entries whose results of the last poll(2) have not been seen
	parked  bool    // a goroutine blocks on a copy of fds
	kicked  bool    // and was kicked to take a new copy
	dormant int     // the number of dormant entries

	// blocking is the copy that the one goroutine in Park passes to poll(2).
	blocking []unix.PollFd
}

// A state is the interest of an entry together with the flags below.
type state uint8

const (
	interested = state(backend.In | backend.Urgent | backend.Out | backend.PeerClosed)
	// isDormant marks a socket for which poll(2) persistently reports a condition of no use: a stream that was
	// never started, or one whose end was reported. The blocking poll(2) leaves it out, and Park polls it
	// again from time to time.
	isDormant   state = 1 << 6
	wasReported state = 1 << 7 // its end was reported
	// listens marks a listener. Dead means that a listener was shut down, and that a stream was never started.
	listens state = 1 << 4
)

func stateOf(interest backend.Mask) state {
	st := state(interest) & interested
	if interest&backend.Dead != 0 {
		st |= wasReported
	}
	return st
}

func (st state) interest() backend.Mask { return backend.Mask(st & interested) }

// New opens a Poller, with a waker and, on the BSDs and macOS, a kqueue for identities.
func New() (backend.Poller, error) {
	waker, err := unixsock.NewWaker()
	if err != nil {
		return nil, err
	}
	p := &Poller{waker: waker, fds: []unix.PollFd{waker.Entry()},
		tokens: make([]uint64, 1), ids: make([]identity, 1), states: make([]state, 1)}
	if err := p.known.open(); err != nil {
		waker.Close()
		return nil, err
	}
	return p, nil
}

// Edges is false: poll(2) has none.
func (p *Poller) Edges() bool { return false }

// Describe implements backend.Poller.
func (p *Poller) Describe(handle uintptr) (backend.Kind, error) { return unixsock.Describe(handle) }

// PollOne implements backend.Poller.
func (p *Poller) PollOne(handle uintptr) backend.Mask { return unixsock.PollOne(handle) }

// Has implements backend.Poller.
func (p *Poller) Has(handle uintptr) (bool, error) {
	fd, ok := unixsock.FD(handle)
	if !ok {
		return false, unix.EBADF
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, status, err := p.find(fd)
	if status == backend.Bad {
		return false, err
	}
	return status == backend.Done, nil
}

// Poll implements backend.Poller.
func (p *Poller) Poll(changes []backend.Change, ready []backend.Ready) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		c.Status, c.Err = p.apply(c)
	}
	if len(changes) > 0 {
		p.kick()
	}
	if len(ready) == 0 {
		return 0
	}
	return p.harvest(ready)
}

// Close implements backend.Poller.
func (p *Poller) Close() error {
	err := p.known.close()
	if e := p.waker.Close(); e != nil {
		err = e
	}
	return err
}
