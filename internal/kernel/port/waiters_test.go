package port

import (
	"testing"
	"unsafe"
)

// Waiting touches one cache line of the port. The port may begin eight bytes into a line, which is
// what an allocation's header takes.
func TestWaitersLieInOneLine(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("the layout is for 64 bits")
	}
	var p Port
	for _, header := range []uintptr{0, 8} {
		first := unsafe.Offsetof(p.Waiters) + header
		if last := first + unsafe.Offsetof(p.Waiters.closed); first/64 != last/64 {
			t.Errorf("bytes %d to %d", first, last)
		}
	}
}
