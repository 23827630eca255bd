package proc

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
	// MaxCounters is how many counts there are.
	MaxCounters = 64
	// apart is the distance of two counts in bytes, so that they share no cache line.
	apart = 128
)

// OpenCounters maps the file, and creates it first if it does not exist.
func OpenCounters(path string) (*Counters, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(MaxCounters * apart); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, MaxCounters*apart, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return &Counters{mem}, nil
}

// Close unmaps the file. No count may be used afterwards.
func (c *Counters) Close() error { return unix.Munmap(c.mem) }

// Of returns count i.
func (c *Counters) Of(i int) *atomic.Int64 {
	return (*atomic.Int64)(unsafe.Pointer(&c.mem[i*apart]))
}

// Reset makes all counts zero. No process may be counting.
func (c *Counters) Reset() {
	for i := range MaxCounters {
		c.Of(i).Store(0)
	}
}

// Sum returns the sum of all counts.
func (c *Counters) Sum() (n int64) {
	for i := range MaxCounters {
		n += c.Of(i).Load()
	}
	return n
}
