package testrooms

import (
	"strconv"
	"strings"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/kernel/psn"
	"github.com/socknotify/socknotify/internal/kernel/psn/fakepsn"
	"github.com/socknotify/socknotify/internal/kernel/rooms"
	"github.com/socknotify/socknotify/internal/ring"
)

const psnFake = "psn-fake"

// fakes returns the backend of ProcessSocketNotifications on the plainest fake of it, and Ring.
func fakes() []rooms.Room {
	list := []rooms.Room{on(psnFake, fakepsn.Quirks{})}
	if ring.Probe() == nil {
		list = append(list, rooms.Room{Name: Ring, Open: ring.New})
	}
	return list
}

// fake returns a room that is there only when a test asks for it by name: RingAlways; or psn-fake-1 and so on, on a
// fake with other choices of what the reference leaves open.
func fake(name string) (rooms.Room, bool) {
	if name == RingAlways {
		return rooms.Room{Name: RingAlways, Open: ring.NewAlways}, ring.Probe() == nil
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
