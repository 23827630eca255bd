package ring

import (
	"errors"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backend/epoll"
)

// Poller is the epoll backend with rings for overlapped operations. It implements backend.Poller, backend.Batcher and
// backend.Files.
type Poller struct {
	*epoll.Poller

	always    bool // use the ring for every receive, send, read and write
	exchanges exchanges
	files     files
}

// New opens a Poller. Its rings are opened with the first operations that need them.
func New() (backend.Poller, error) { return poller(false) }

// NewAlways is New for tests. The Poller uses its rings also where system calls cost less.
func NewAlways() (backend.Poller, error) { return poller(true) }

func poller(always bool) (backend.Poller, error) {
	p, err := open(always)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func open(always bool) (*Poller, error) {
	e, err := epoll.Open()
	if err != nil {
		return nil, err
	}
	p := &Poller{Poller: e, always: always}
	p.exchanges.free = make(chan *ring, maxRings)
	return p, nil
}

// Close implements backend.Poller. It waits until the kernel has no buffer of a file operation.
func (p *Poller) Close() error {
	return errors.Join(p.files.close(), p.Poller.Close(), p.exchanges.close())
}
