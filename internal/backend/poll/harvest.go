//go:build unix

package poll

import (
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backend/unixsock"
)

// harvest reports what the last poll(2) found and nobody had room for, and only then asks again: a
// poll of everything for each few reports would cost the square of the number of sockets.
func (p *Poller) harvest(ready []backend.Ready) int {
	n := p.scan(ready, true)
	if n == len(ready) || len(p.fds) == 1 {
		return n
	}
	reports := unixsock.PollNow(p.fds)
	if p.fresh > 0 {
		p.noticeStarted()
	}
	if reports > 0 {
		p.unseen = len(p.fds) - 1
		n += p.scan(ready[n:], false)
	}
	return n
}

// scan goes on through the entries that have not been seen since the last poll(2). What it found may be
// over by now if that was a call ago (again), so it is asked of the entry alone.
func (p *Poller) scan(ready []backend.Ready, again bool) int {
	n := 0
	for ; p.unseen > 0 && n < len(ready); p.unseen-- {
		p.next++
		if p.next >= len(p.fds) {
			p.next = 1
		}
		if p.next >= len(p.fds) {
			break
		}
		f := &p.fds[p.next]
		if f.Fd < 0 || f.Revents == 0 || again && unixsock.PollNow(p.fds[p.next:p.next+1]) <= 0 {
			continue
		}
		if m, ok := p.report(p.next); ok {
			ready[n] = backend.Ready{Token: p.tokens[p.next], Mask: m}
			n++
		}
	}
	return n
}

// inputVague tells that poll(2) reports input for other things as well, and is always asked for it.
const inputVague = unixsock.Vague&backend.In != 0

// noticeStarted takes sockets back into the blocking poll that have lost what was to nobody's use.
func (p *Poller) noticeStarted() {
	for at, st := range p.states {
		if st&isFresh != 0 && unixsock.Mask(&p.fds[at])&(backend.Dead|unixsock.Vague&backend.In) == 0 {
			p.setFresh(at, false)
			p.kick()
		}
	}
}

// report turns what poll(2) said of an entry into a report, or into nothing.
func (p *Poller) report(at int) (m backend.Mask, ok bool) {
	f, st := &p.fds[at], p.states[at]
	interest := st.interest()
	m = unixsock.Mask(f)
	if m&unixsock.Vague != 0 {
		m = unixsock.Look(uintptr(f.Fd))
		if inputVague && m&(backend.In|backend.Err) == backend.In {
			m |= p.known.behind(int(f.Fd))
		}
		m &= interest | backend.Err | backend.Dead | backend.PeerClosed
	}
	// No socket's identity is used twice in a row, so a number that names the remembered socket now did
	// so when poll(2) looked.
	if same, err := p.known.same(int(f.Fd), p.ids[at]); err != nil || !same || f.Revents&unix.POLLNVAL != 0 {
		p.silence(at)
		return 0, false
	}
	switch {
	case inputVague && m&(interest|backend.Err|backend.Dead) == 0,
		st&listens == 0 && m&(backend.Dead|backend.PeerClosed|backend.Err) == backend.Dead, // never started: what failed may be Dead alone, too
		st&wasTold != 0 && m&backend.Dead != 0 && m&(interest|backend.Err) == 0:
		p.setFresh(at, true)
		return 0, false
	case m == 0:
		return 0, false // over by now; it stays armed
	}
	p.silence(at)
	return m, true
}
