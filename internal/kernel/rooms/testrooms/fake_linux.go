package testrooms

import (
	"strconv"
	"strings"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/kernel/psn"
	"github.com/socknotify/socknotify/internal/kernel/psn/fakepsn"
	"github.com/socknotify/socknotify/internal/kernel/rooms"
)

const psnFake = "psn-fake"

// fakes returns the room of ProcessSocketNotifications on the plainest fake of it.
func fakes() []rooms.Room {
	return []rooms.Room{on(psnFake, fakepsn.Quirks{})}
}

// fake returns the room on a fake with other choices of what the reference leaves open: psn-fake-1 and so on.
func fake(name string) (rooms.Room, bool) {
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
