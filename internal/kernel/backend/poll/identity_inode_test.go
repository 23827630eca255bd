//go:build linux || solaris || aix

package poll

import (
	"math"
	"testing"
)

// Two identities differ if a device or an inode number differs, however large the numbers are.
func TestIdentity(t *testing.T) {
	values := []uint64{0, 1, 2, 1 << 31, 1 << 32, 1<<32 | 1, 1<<48 - 1, 1 << 48, 1 << 63, math.MaxUint64}
	var ids identities
	for fd, device := range values {
		for _, file := range values {
			id := ids.keep(fd, device, file)
			if id == (identity{}) {
				t.Fatalf("%#x of %#x has no identity", file, device)
			}
			for _, otherDevice := range values {
				for _, otherFile := range values {
					want := otherDevice == device && otherFile == file
					if got := ids.is(fd, id, otherDevice, otherFile); got != want {
						t.Errorf("%#x of %#x, and %#x of %#x: the same is %t", file, device, otherFile, otherDevice, got)
					}
				}
			}
		}
	}
	if ids.is(0, identity{}, 0, 0) {
		t.Error("the zero identity matches a file")
	}
	for fd := range values {
		ids.drop(fd)
	}
	if len(ids.far) != 0 {
		t.Errorf("left: %v", ids.far)
	}
}

// More devices than fit into devices are distinguished too.
func TestIdentityManyDevices(t *testing.T) {
	var ids identities
	ids.devices = make([]uint64, 1<<16-2)
	for i := range ids.devices {
		ids.devices[i] = uint64(i)
	}
	last, beyond := ids.keep(1, 1<<16-3, 7), ids.keep(2, 1<<16, 7)
	if !ids.is(1, last, 1<<16-3, 7) || ids.is(1, last, 1<<16, 7) || !ids.is(2, beyond, 1<<16, 7) || ids.is(2, beyond, 1<<16-3, 7) {
		t.Errorf("%#x, %#x", last, beyond)
	}
	if ids.keep(2, 0, 7) == beyond || len(ids.far) != 0 {
		t.Errorf("a number that is used again keeps %v", ids.far)
	}
}
