package backendtest

import (
	"strconv"
	"strings"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backend/psn"
	"github.com/socknotify/socknotify/internal/backend/system"
	"github.com/socknotify/socknotify/internal/test/fakepsn"
)

const psnFake = "psn-fake"

// preferred are backends that are left out of the system's own list where the system refuses them.
var preferred []string

// fakes returns the backend of ProcessSocketNotifications on the plainest fake of it, or why it is refused.
func fakes() (list []system.Backend, refused map[string]error) {
	refused = make(map[string]error)
	if err := fakepsn.Supported(); err != nil {
		refused[psnFake] = err
	} else {
		list = append(list, on(psnFake, fakepsn.Quirks{}))
	}
	return list, refused
}

// fakeNamed returns a backend that is there only when a test asks for it by name: psn-fake-1 and so on, on a fake with other
// choices of what the reference leaves open. The error is errUnknown.
func fakeNamed(name string) (system.Backend, error) {
	number, ok := strings.CutPrefix(name, psnFake+"-")
	seed, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil {
		return system.Backend{}, errUnknown
	}
	return on(name, fakepsn.Seeded(seed)), nil
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
