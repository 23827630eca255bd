package tlsrecord

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ciphers drops the ciphers of connections that are idle. A cipher has 1,280 bytes, and is made in
// half a microsecond; keys stay.
var ciphers keeper

const (
	// cipherIdle is how long a connection is idle before its ciphers are dropped, at least; at most
	// it is twice as long.
	cipherIdle = time.Second
	// maxLive bounds the connections with ciphers. Beyond it a connection has them only during a
	// call.
	maxLive = 16 << 10
)

// A User is the owner of a Pump.
type User interface {
	// DropCiphers drops the ciphers by Pump.DropCiphers, unless a call uses them. Then it returns
	// false.
	DropCiphers() bool
}

// A keeper knows the connections that may have ciphers.
type keeper struct {
	round atomic.Uint32 // of sweeps

	mu    sync.Mutex
	live  []keeping
	sweep *time.Timer // runs while there are some
}

// A keeping is a connection that may have ciphers.
type keeping struct {
	User
	used *atomic.Uint32 // the round in which it has last used one, and 1
}

// use notes that a connection is about to use a cipher. used is where it notes when that was; it is
// 0 as long as the connection is not known here, so that it must drop the cipher at the end of the
// call. The connection may not drop ciphers at the same time.
func (k *keeper) use(u User, used *atomic.Uint32) {
	now := k.round.Load() + 1
	switch used.Load() {
	case now:
	case 0:
		k.add(u, used)
	default:
		used.Store(now)
	}
}

func (k *keeper) add(u User, used *atomic.Uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.live) >= maxLive {
		return
	}
	if used.Load() > 0 { // the other direction has added it
		return
	}
	k.live = append(k.live, keeping{u, used})
	used.Store(k.round.Load() + 1)
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
	now := k.round.Add(1) + 1
	k.mu.Lock()
	defer k.mu.Unlock()
	k.live = slices.DeleteFunc(k.live, func(c keeping) bool {
		return now-c.used.Load() > 1 && c.DropCiphers()
	})
	if cap(k.live) > 4*len(k.live) { // so that memory does not stay
		k.live = append([]keeping(nil), k.live...)
	}
	if len(k.live) > 0 {
		k.sweep.Reset(cipherIdle)
	}
}

// DropCiphers is for the sweep.
func (c *Conn) DropCiphers() bool { return c.pump.DropCiphers(&c.writing) }

// Live returns the number of connections that have ciphers, for tests.
func Live() int {
	ciphers.mu.Lock()
	defer ciphers.mu.Unlock()
	return len(ciphers.live)
}
