package backendtest

import (
	"strconv"
	"strings"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backend/psn"
	"github.com/socknotify/socknotify/internal/backend/psn/fakepsn"
	"github.com/socknotify/socknotify/internal/backend/system"
	"github.com/socknotify/socknotify/internal/ring"
)

const psnFake = "psn-fake"

// fakes returns the backend of ProcessSocketNotifications on the plainest fake of it, and Ring.
func fakes() []system.Backend {
	list := []system.Backend{on(psnFake, fakepsn.Quirks{})}
	if ring.Probe() == nil {
		list = append(list, system.Backend{Name: Ring, Open: ring.New})
	}
	return list
}

// fake returns a backend that is there only when a test asks for it by name: RingAlways; or psn-fake-1 and so on, on a
// fake with other choices of what the reference leaves open.
func fake(name string) (system.Backend, bool) {
	if name == RingAlways {
		return system.Backend{Name: RingAlways, Open: ring.NewAlways}, ring.Probe() == nil
	}
	seed, err := strconv.ParseUint(strings.TrimPrefix(name, psnFake+"-"), 10, 64)
	return on(name, fakepsn.Seeded(seed)), err == nil
}

func on(name string, q fakepsn.Quirks) system.Backend {
	sys := fakepsn.New(q).System()
	err := psn.Probe(sys)
	return system.Backend{Name: name, Open: func() (backend.Poller, error) {
		if err != nil {
			return nil, err
		}
		return psn.NewOn(sys)
	}}
}
