package backendtest

import (
	"strconv"
	"strings"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/psn"
	"github.com/socknotify/socknotify/internal/kernel/backend/system"
	"github.com/socknotify/socknotify/internal/test/fakepsn"
)

// fake returns a fake backend of ProcessSocketNotifications: psn-fake, on the plainest fake of it,
// or psn-fake-1 and so on, on a fake with other choices of what the reference leaves open.
func fake(name string) (system.Backend, error) {
	rest, ok := strings.CutPrefix(name, "psn-fake")
	number, seeded := strings.CutPrefix(rest, "-")
	var quirks fakepsn.Quirks
	if seeded {
		seed, err := strconv.ParseUint(number, 10, 64)
		ok, quirks = ok && err == nil, fakepsn.Seeded(seed)
	}
	if !ok || rest != "" && !seeded {
		return system.Backend{}, errUnknown
	}
	if err := fakepsn.Supported(); err != nil {
		return system.Backend{}, err
	}
	return on(name, quirks), nil
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
