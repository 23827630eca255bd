//go:build unix

package poll

import (
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/unixsock"
)

// harvest fills ready, first with results of the last poll(2) that did not fit into an earlier harvest.
// It calls poll(2) again only when these are used up: a poll of all sockets for each few reports would
// cost time quadratic in the number of sockets.
func (p *Poller) harvest(ready []backend.Ready) int {
	n := p.scan(ready, true)
	if n == len(ready) || len(p.fds) == 1 {
		return n
	}
	reports := unixsock.PollNow(p.fds)
	if p.dormant > 0 {
		p.rewatchStarted()
	}
	if reports > 0 {
		p.unseen = len(p.fds) - 1
		n += p.scan(ready[n:], false)
	}
	return n
}

// scan continues through the entries that have not been seen since the last poll(2), and reports those with
// results. again is set if that poll(2) was made by an earlier call. Its results may be outdated then, so scan
// polls each such entry again.
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
		if f.Fd < 0 || f.Revents == 0 || again && unixsock.PollNow(p.fds[p.next:p.next+1]) <= 0 || p.neverStarted(p.next) {
			continue
		}
		if m, ok := p.report(p.next); ok {
			ready[n] = backend.Ready{Token: p.tokens[p.next], Mask: m}
			n++
		}
	}
	return n
}

// neverStarted reports whether a dormant entry is a stream that still was not started. Its results say so without another
// system call: a dormant entry asks for input and for the end of the peer's direction, and both hold once a stream has ended.
func (p *Poller) neverStarted(at int) bool {
	const started = backend.In | backend.PeerClosed | backend.Err
	f := &p.fds[at]
	return p.states[at]&(isDormant|listens) == isDormant && f.Revents&unix.POLLNVAL == 0 &&
		unixsock.Mask(f)&(backend.Dead|started) == backend.Dead
}

// inputAmbiguous is true if poll(2) reports other conditions as input too, so that each entry asks for input.
const inputAmbiguous = unixsock.Ambiguous&backend.In != 0

// rewatchStarted puts dormant sockets back into the blocking poll if their useless condition has ended.
func (p *Poller) rewatchStarted() {
	for at, st := range p.states {
		if st&isDormant != 0 && unixsock.Mask(&p.fds[at])&(backend.Dead|unixsock.Ambiguous&backend.In) == 0 {
			p.setDormant(at, false)
			p.kick()
		}
	}
}

// report converts the result of poll(2) for an entry into a report. ok is false if there is nothing to report.
func (p *Poller) report(at int) (m backend.Mask, ok bool) {
	f, st := &p.fds[at], p.states[at]
	interest := st.interest()
	m = unixsock.Mask(f)
	if m&unixsock.Ambiguous != 0 {
		m = unixsock.PollOne(uintptr(f.Fd))
		if inputAmbiguous && m&(backend.In|backend.Err) == backend.In {
			m |= p.known.behind(int(f.Fd))
		}
	}
	m &= interest | backend.Err | backend.Dead | backend.PeerClosed
	// No identity is used by two sockets in a row. So if the number names the remembered socket now, it did
	// so during poll(2).
	if same, err := p.known.same(int(f.Fd), p.ids[at]); err != nil || !same || f.Revents&unix.POLLNVAL != 0 {
		p.suppress(at)
		return 0, false
	}
	switch {
	case inputAmbiguous && m&(interest|backend.Err|backend.Dead) == 0,
		st&listens == 0 && m&(backend.Dead|backend.PeerClosed|backend.Err) == backend.Dead, // never started; a failed connect may be Dead alone too
		st&wasReported != 0 && m&backend.Dead != 0 && m&(interest|backend.Err) == 0:
		p.setDormant(at, true)
		return 0, false
	case m == 0:
		return 0, false // the condition has ended; the entry stays armed
	}
	p.suppress(at)
	return m, true
}
