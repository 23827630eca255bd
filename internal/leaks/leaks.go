// Package leaks is for tests: goroutines that are left behind. It is goleak, with more patience than that has
// for goroutines that are about to end on a machine that is busy with something else.
package leaks

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

const patience = time.Minute

// Find waits until there are no goroutines but those that options leave out, and names those that do not end.
func Find(options ...goleak.Option) error {
	for end := time.Now().Add(patience); ; {
		if err := goleak.Find(options...); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// Main is a TestMain that fails where tests have left goroutines behind.
func Main(m *testing.M, options ...goleak.Option) { goleak.VerifyTestMain(patient{m}, options...) }

type patient struct{ *testing.M }

func (p patient) Run() (status int) {
	if status = p.M.Run(); status == 0 {
		_ = Find() // which goleak reports
	}
	return status
}
