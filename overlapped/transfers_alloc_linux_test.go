//go:build !race

package overlapped

import (
	"testing"

	"github.com/socknotify/socknotify"
)

// Starting, carrying out and dequeuing allocate nothing (O12).
func TestTransfersAllocateNothing(t *testing.T) {
	p, _ := transferringPort[int](t)
	r, w := slow(t)
	var o Op[int]
	b, x := make([]byte, 1), []byte("x")
	var out [1]socknotify.Notification[int]
	once := func() {
		ReadAt(p, r, 1, b, 0, &o)
		w.Write(x)
		if n, err := p.Process(nil, out[:], soon); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	once()
	if n := testing.AllocsPerRun(200, once); n != 0 {
		t.Errorf("%v allocations each time", n)
	}
}
