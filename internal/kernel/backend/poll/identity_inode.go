//go:build linux || solaris || aix

package poll

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// identities distinguish sockets by the device and inode numbers of fstat(2).
type identities struct {
	devices []uint64          // the devices of the sockets seen, which are few
	far     map[int][2]uint64 // device and inode by descriptor, if they do not fit into an identity
}

// An identity holds both numbers: the index of the device in devices, plus 1, and the two halves of the inode number,
// which has 32 bits on Linux. It has three uint16 fields to take six bytes; a uint64 would take eight. The zero value
// is the identity of no socket.
type identity struct{ device, high, low uint16 }

// isFar as the device means that the identity is in far.
const isFar = 1<<16 - 1

func (*identities) open() error  { return nil }
func (*identities) close() error { return nil }

// of returns the identity of the file that a number names now, or an error if the number is closed.
func (ids *identities) of(fd int) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return identity{}, err
	}
	return ids.keep(fd, uint64(st.Dev), uint64(st.Ino)), nil
}

// same reports whether a number still names the file that it named when of returned id.
func (ids *identities) same(fd int, id identity) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	return ids.is(fd, id, uint64(st.Dev), uint64(st.Ino)), nil
}

func (ids *identities) keep(fd int, device, file uint64) identity {
	at := slices.Index(ids.devices, device) + 1
	if at == 0 && len(ids.devices) < isFar-1 {
		ids.devices = append(ids.devices, device)
		at = len(ids.devices)
	}
	if at == 0 || file>>32 != 0 {
		if ids.far == nil {
			ids.far = make(map[int][2]uint64)
		}
		ids.far[fd] = [2]uint64{device, file}
		return identity{device: isFar}
	}
	delete(ids.far, fd)
	return identity{uint16(at), uint16(file >> 16), uint16(file)}
}

func (ids *identities) is(fd int, id identity, device, file uint64) bool {
	switch id.device {
	case 0:
		return false
	case isFar:
		return ids.far[fd] == [2]uint64{device, file}
	}
	return ids.devices[id.device-1] == device && uint64(id.high)<<16|uint64(id.low) == file
}

func (ids *identities) drop(fd int) { delete(ids.far, fd) }

// behind returns 0: these systems have no means to find what unread data hides.
func (*identities) behind(int) backend.Mask { return 0 }
