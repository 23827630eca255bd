package system_test

import (
	"fmt"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/psn"
	"github.com/socknotify/socknotify/internal/kernel/backend/system"
	"github.com/socknotify/socknotify/internal/test/fakepsn"
)

// fakes returns psn on fakes of Windows with several choices of what the reference leaves open.
func fakes() (all []system.Backend) {
	for seed := range uint64(17) {
		quirks := fakepsn.Quirks{} // the plain fake
		if seed > 0 {
			quirks = fakepsn.Seeded(seed)
		}
		sys := fakepsn.New(quirks).System()
		all = append(all, system.Backend{
			Name: fmt.Sprint("psn-fake-", seed),
			Open: func() (backend.Poller, error) {
				if err := psn.Probe(sys); err != nil {
					return nil, err
				}
				return psn.NewOn(sys)
			},
		})
	}
	return all
}
