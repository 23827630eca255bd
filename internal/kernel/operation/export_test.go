package operation

import "github.com/socknotify/socknotify/internal/kernel/port"

// Occupy counts as many workers in as there may be, so that operations on files wait until the
// function that it returns is called.
func Occupy(p *port.Port) (release func()) {
	f := filesOf(p.Core)
	workers := func(n int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.workers += n
	}
	workers(maxWorkers)
	return func() { workers(-maxWorkers) }
}
