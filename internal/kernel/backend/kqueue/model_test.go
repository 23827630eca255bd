package kqueue

import "slices"

// A model is a kqueue: knotes by number and filter. A knote is removed when its number is closed. It becomes
// active when a poll of its socket finds its condition, and is reported if it is enabled and its condition
// still holds.
type model struct {
	sockets map[int]*socket
	knotes  map[[2]int]*knote
	queued  [][2]int // active, in the order in which they became so

	lazy     bool           // takes parameters, and polls again, only with EV_ADD, as OpenBSD does
	receipts bool           // returns steps that succeeded too
	lenient  bool           // looks up the knote before the descriptor, as macOS does
	before   func(step int) // called before each step
}

type socket struct {
	data  int64
	eof   bool
	errno uint32
	room  bool
}

type knote struct {
	socket  *socket
	enabled bool
	active  bool
	fflags  uint32
	data    int64
	polls   int
}

const (
	noEnt = 2
	badF  = 9
)

func newModel() *model {
	return &model{sockets: map[int]*socket{}, knotes: map[[2]int]*knote{}}
}

func (m *model) drop(at [2]int) {
	delete(m.knotes, at)
	m.queued = slices.DeleteFunc(m.queued, func(x [2]int) bool { return x == at })
}

func (m *model) closed(fd int) {
	delete(m.sockets, fd)
	m.drop([2]int{fd, int(reads)})
	m.drop([2]int{fd, int(writes)})
}

func (m *model) reuse(fd int, s *socket) {
	m.closed(fd)
	m.sockets[fd] = s
}

// holds reports whether the condition of a knote holds.
func (n *knote) holds(f filter) bool {
	s := n.socket
	if f == writes {
		return s.room || s.eof && s.errno != 0
	}
	return s.eof || s.errno != 0 || n.fflags&noteLowat == 0 && s.data > 0 || n.fflags&noteLowat != 0 && s.data >= n.data
}

func (m *model) poll(at [2]int) {
	if n := m.knotes[at]; n != nil && n.holds(filter(at[1])) && !n.active {
		n.active = true
		m.queued = append(m.queued, at)
	}
}

// submit makes the steps and returns the errors, and perhaps the rest.
func (m *model) submit(list []kevent) (returned []kevent) {
	for i, k := range list {
		if m.before != nil {
			m.before(i)
		}
		if e := m.step(k); e != 0 || m.receipts {
			k.flags, k.data = evError, e
			returned = append(returned, k)
		}
	}
	return returned
}

func (m *model) step(k kevent) int64 {
	at := [2]int{k.fd, int(k.filter)}
	s, open := m.sockets[k.fd]
	n := m.knotes[at]
	switch {
	case !open && (k.flags&evAdd != 0 || !m.lenient):
		return badF
	case n == nil && k.flags&evAdd == 0:
		return noEnt
	case k.flags&evDelete != 0:
		m.drop(at)
		return 0
	case n == nil:
		n = &knote{socket: s, enabled: k.flags&evDisable == 0}
		m.knotes[at] = n
	}
	if k.flags&evAdd != 0 || !m.lazy {
		n.fflags, n.data = k.fflags, k.data
	}
	switch {
	case k.flags&evDisable != 0:
		n.enabled = false
	case k.flags&evEnable != 0:
		n.enabled = true
	}
	if n.enabled && (k.flags&evAdd != 0 || !m.lazy) {
		n.polls++
		m.poll(at)
	}
	return 0
}
