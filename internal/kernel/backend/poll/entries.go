//go:build unix

package poll

import (
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/unixsock"
)

// find looks up the entry of a number and checks that the number still names the entry's socket. at is
// the position of the entry, whatever the status, or 0 if there is none.
func (p *Poller) find(fd int) (at int, status backend.Status, err error) {
	if fd < len(p.index) {
		at = int(p.index[fd])
	}
	same, err := p.known.same(fd, p.ids[at])
	switch {
	case err != nil:
		return at, backend.Bad, err
	case at == 0 || !same:
		return at, backend.Absent, unix.ENOENT
	}
	return at, backend.Done, nil
}

func (p *Poller) apply(c *backend.Change) (backend.Status, error) {
	fd, ok := unixsock.FD(c.Handle)
	if !ok {
		return backend.Bad, unix.EBADF
	}
	at, status, err := p.find(fd)
	if c.Action != backend.Add {
		if status == backend.Done && c.Action == backend.Set {
			p.set(at, fd, c)
			return backend.Done, nil
		}
		if status == backend.Done && c.Action == backend.Suppress {
			p.suppress(at)
			return backend.Done, nil
		}
		if at != 0 {
			p.drop(at, fd) // deleted, or the entry of a socket that no longer has the number
		}
		return status, err
	}
	switch status {
	case backend.Done:
		return backend.Present, unix.EEXIST
	case backend.Bad:
		return backend.Bad, err
	}
	if at == 0 && len(p.fds) >= maxEntries {
		return backend.Refused, unix.EMFILE
	}
	id, err := p.known.of(fd)
	if err != nil {
		return backend.Bad, err
	}
	if at == 0 {
		at = p.append(fd)
	}
	p.ids[at] = id
	p.states[at] &^= listens
	if c.Listens {
		p.states[at] |= listens
	}
	p.set(at, fd, c)
	return backend.Done, nil
}

func (p *Poller) append(fd int) int {
	if fd >= len(p.index) {
		p.index = grow(p.index, fd+1)
		p.index = p.index[:cap(p.index)]
	}
	at := len(p.fds)
	if at == cap(p.fds) {
		p.fds, p.tokens = grow(p.fds, at+1), grow(p.tokens, at+1)
		p.ids, p.states = grow(p.ids, at+1), grow(p.states, at+1)
	}
	p.fds = append(p.fds, unix.PollFd{})
	p.tokens = append(p.tokens, 0)
	p.ids = append(p.ids, identity{})
	p.states = append(p.states, 0)
	p.index[fd] = int32(at)
	return at
}

// grow returns s with capacity for n elements and a sixteenth more, rounded up to 1024 elements in a large array.
// append would reserve more memory than an idle entry takes otherwise.
func grow[T any](s []T, n int) []T {
	n += max(64, n/16)
	if n > 1024 {
		n = (n + 1023) &^ 1023
	}
	return append(make([]T, 0, n), s...)
}

func (p *Poller) set(at, fd int, c *backend.Change) {
	p.setDormant(at, false)
	p.tokens[at], p.states[at] = c.Token, stateOf(c.Interest)|p.states[at]&listens
	p.fds[at] = unixsock.Poll(fd, c.Interest)
}

// setDormant changes what poll(2) is asked for too (neverStarted).
func (p *Poller) setDormant(at int, is bool) {
	st, f := &p.states[at], &p.fds[at]
	if *st&isDormant != 0 == is {
		return
	}
	asked := st.interest()
	if is {
		*st |= isDormant
		p.dormant++
		asked |= backend.In | backend.PeerClosed
	} else {
		*st &^= isDormant
		p.dormant--
	}
	f.Events = unixsock.Poll(int(f.Fd), asked).Events
}

func (p *Poller) suppress(at int) {
	p.setDormant(at, false)
	if fd := p.fds[at].Fd; fd >= 0 {
		p.fds[at] = unix.PollFd{Fd: ^fd, Events: p.fds[at].Events}
	}
}

// drop removes an entry and moves the last one into its place.
func (p *Poller) drop(at, fd int) {
	p.setDormant(at, false)
	p.known.drop(fd)
	p.index[fd] = 0
	last := len(p.fds) - 1
	if at != last {
		p.fds[at], p.tokens[at], p.ids[at], p.states[at] = p.fds[last], p.tokens[last], p.ids[last], p.states[last]
		moved := p.fds[at].Fd
		if moved < 0 {
			moved = ^moved
		}
		p.index[moved] = int32(at)
	}
	p.fds, p.tokens, p.ids, p.states = p.fds[:last], p.tokens[:last], p.ids[:last], p.states[:last]
}
