package load

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Counters are counts that one process makes and another reads, in a file that both map.
type Counters struct{ mem []byte }

const (
	maxThreads = 64
	apart      = 128 // bytes, so that no two counts share a cache line
)

// OpenCounters maps the file, which it makes if need be.
func OpenCounters(path string) (*Counters, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(maxThreads * apart); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, maxThreads*apart, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return &Counters{mem}, nil
}

// Close unmaps the file. No count may be used afterwards.
func (c *Counters) Close() error { return unix.Munmap(c.mem) }

// of is the count of one thread.
func (c *Counters) of(thread int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&c.mem[thread*apart]))
}

// Reset makes all counts zero. Nobody may be counting.
func (c *Counters) Reset() {
	for i := range maxThreads {
		c.of(i).Store(0)
	}
}

// Sum is that of all threads' counts.
func (c *Counters) Sum() (n uint64) {
	for i := range maxThreads {
		n += c.of(i).Load()
	}
	return n
}
