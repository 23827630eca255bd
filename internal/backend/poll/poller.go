//go:build unix

// Package poll is the backend of poll(2): the portable fall-back, and the second opinion in tests.
//
// A report silences its handle until the next Set (Edges is false). poll(2) knows numbers, not
// sockets, so each entry is checked to name its socket still before it reports.
//
// How well that check works, and how much there is to tell, differs:
//
//   - Linux has inode numbers that are not used twice in a row, and poll(2) says everything.
//   - Elsewhere poll(2) says of an error, and mostly of the end of a stream, that there is input. So each
//     report of input takes a peek into the socket, which allocates where there is a sender's address.
//   - The BSDs and macOS number no sockets. A kqueue stands witness: it forgets a number when it is closed.
//     It also knows what is behind unread data.
//   - illumos and Solaris make a number of 16 bits from the socket's address, which the next socket may
//     get; of AIX it is not known. There a number that was closed without OpRemove or Close of package
//     sock, and used again, can go on reporting to the old key. An error behind unread data is found once
//     that was received; so is, but on illumos, the end of the peer's direction alone.
//   - What stands and is no news is looked at again from time to time, 250 ms apart in the end. Off Linux
//     that includes unread data that an edge has told of; what comes behind it is told so much later.
package poll

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backend/unixsock"
)

// Poller implements backend.Poller on an array of pollfds.
type Poller struct {
	bell  unixsock.Bell // entry 0 of the array
	woken atomic.Bool
	known identities

	mu sync.Mutex
	// fds is what poll(2) reads. A silent entry has its number complemented, which poll skips.
	fds []unix.PollFd
	// Beside fds, an array for each part of an entry, because together they would be padded.
	tokens []uint64
	ids    []identity
	states []state
	index  []int32 // handle -> position in fds; 0 is none
	next   int     // the entry that was seen last; the next scan goes on from it, so that none starves
	unseen int     // entries whose results of the last poll(2) have not been seen
	parked bool    // somebody blocks on a copy of fds
	kicked bool    // and has been told to take a new copy
	fresh  int     // entries that are

	// blocking is the copy that the one goroutine in Park hands to the system.
	blocking []unix.PollFd
}

// A state is the interest that an entry has, and what else there is to know of it.
type state uint8

const (
	interested = state(backend.In | backend.Urgent | backend.Out | backend.PeerClosed)
	// isFresh marks a socket of which poll(2) reports what is to nobody's use, for as long as it stands: a
	// stream that was never started, or one whose end has been told. The blocking poll leaves it out and
	// comes back to it from time to time.
	isFresh state = 1 << 6
	wasTold state = 1 << 7 // its end has been told
	// listens marks a listener: dead, it was shut down, where a stream was never started.
	listens state = 1 << 4
)

func stateOf(interest backend.Mask) state {
	st := state(interest) & interested
	if interest&backend.Dead != 0 {
		st |= wasTold
	}
	return st
}

func (st state) interest() backend.Mask { return backend.Mask(st & interested) }

// New opens a bell for wake-ups, and what tells sockets apart.
func New() (backend.Poller, error) {
	bell, err := unixsock.NewBell()
	if err != nil {
		return nil, err
	}
	p := &Poller{bell: bell, fds: []unix.PollFd{bell.Entry()},
		tokens: make([]uint64, 1), ids: make([]identity, 1), states: make([]state, 1)}
	if err := p.known.open(); err != nil {
		bell.Close()
		return nil, err
	}
	return p, nil
}

// Edges is false: poll(2) has none.
func (p *Poller) Edges() bool { return false }

// Describe implements backend.Poller.
func (p *Poller) Describe(handle uintptr) (backend.Kind, error) { return unixsock.Describe(handle) }

// Look implements backend.Poller.
func (p *Poller) Look(handle uintptr) backend.Mask { return unixsock.Look(handle) }

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
	if e := p.bell.Close(); e != nil {
		err = e
	}
	return err
}
