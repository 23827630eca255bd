package tlsrecord

import (
	"sync"
	"sync/atomic"
	"time"
)

// ciphers drops the ciphers of connections that are idle. A cipher has 1,280 bytes, and is made in
// half a microsecond; keys stay.
var ciphers = keeper{live: make(map[*Conn]struct{})}

const (
	// cipherIdle is how long a connection is idle before its ciphers are dropped, at least; at most
	// it is twice as long.
	cipherIdle = time.Second
	// maxLive bounds the connections with ciphers. Beyond it a connection has them only during a
	// call.
	maxLive = 16 << 10
)

// A keeper knows the connections that may have ciphers.
type keeper struct {
	round atomic.Uint32 // of sweeps

	mu    sync.Mutex
	live  map[*Conn]struct{}
	sweep *time.Timer // runs while there are some
}

// use notes that a connection is about to use a cipher. Its reading or writing lock is held.
func (k *keeper) use(c *Conn) {
	if now := k.round.Load(); c.round.Load() != now {
		c.round.Store(now)
	}
	if !c.live.Load() {
		k.add(c)
	}
}

func (k *keeper) add(c *Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.live) >= maxLive {
		return
	}
	k.live[c] = struct{}{}
	c.live.Store(true)
	switch {
	case len(k.live) > 1:
	case k.sweep == nil:
		k.sweep = time.AfterFunc(cipherIdle, k.drop)
	default:
		k.sweep.Reset(cipherIdle)
	}
}

// drop drops the ciphers that have not been used for a round.
func (k *keeper) drop() {
	now := k.round.Add(1)
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.live {
		if now-c.round.Load() > 1 && c.dropCiphers() {
			delete(k.live, c)
		}
	}
	if len(k.live) > 0 {
		k.sweep.Reset(cipherIdle)
	}
}

// dropCiphers drops the ciphers of a connection, unless a call uses them.
func (c *Conn) dropCiphers() bool {
	if !c.reading.TryLock() {
		return false
	}
	defer c.endReading()
	if !c.writing.TryLock() {
		return false
	}
	defer c.endWriting()
	c.records.Drop()
	c.records.DropOut()
	c.live.Store(false)
	return true
}

// Live returns the number of connections that have ciphers, for tests.
func Live() int {
	ciphers.mu.Lock()
	defer ciphers.mu.Unlock()
	return len(ciphers.live)
}
