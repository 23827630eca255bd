//go:build linux || solaris || aix

package poll

import (
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel"
)

// identities tell sockets apart by what fstat(2) says.
type identities struct{}

// An identity is a file's number and that of its device, in one: on Linux each has 32 bits, of a socket.
type identity struct{ file uint64 }

func (identities) open() error  { return nil }
func (identities) close() error { return nil }

// of returns the identity of what a number names now; the error is that of a closed one.
func (identities) of(fd int) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return identity{}, err
	}
	return identity{bits.RotateLeft64(uint64(st.Dev), 32) ^ uint64(st.Ino)}, nil
}

// same reports whether a number names what it did when of returned id.
func (ids identities) same(fd int, id identity) (bool, error) {
	now, err := ids.of(fd)
	return err == nil && now == id, err
}

func (identities) drop(int) {}

// behind would tell what unread data hides.
func (identities) behind(int) kernel.Mask { return 0 }
