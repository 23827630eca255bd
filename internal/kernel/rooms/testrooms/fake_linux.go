package testrooms

import (
	"strconv"
	"strings"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/kernel/iouring"
	"github.com/socknotify/socknotify/internal/kernel/psn"
	"github.com/socknotify/socknotify/internal/kernel/psn/fakepsn"
	"github.com/socknotify/socknotify/internal/kernel/rooms"
)

const psnFake = "psn-fake"

// fakes returns the room of ProcessSocketNotifications on the plainest fake of it.
func fakes() []rooms.Room {
	return []rooms.Room{on(psnFake, fakepsn.Quirks{})}
}

// iouringEach is the room of io_uring with every change a submission, because the batches of most tests are too
// small to be worth one.
var iouringEach = rooms.Room{Name: "iouring-each", Open: func() (kernel.Poller, error) { return iouring.NewFrom(1) }}

// fake returns a room that is there only for who asks for it by name: iouring-each; or psn-fake-1 and so on, on a
// fake with other choices of what the reference leaves open.
func fake(name string) (rooms.Room, bool) {
	if name == iouringEach.Name {
		return iouringEach, true
	}
	seed, err := strconv.ParseUint(strings.TrimPrefix(name, psnFake+"-"), 10, 64)
	return on(name, fakepsn.Seeded(seed)), err == nil
}

func on(name string, q fakepsn.Quirks) rooms.Room {
	sys := fakepsn.New(q).System()
	err := psn.Probe(sys)
	return rooms.Room{Name: name, Open: func() (kernel.Poller, error) {
		if err != nil {
			return nil, err
		}
		return psn.NewOn(sys)
	}}
}
