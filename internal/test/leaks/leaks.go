// Package leaks finds goroutines that tests leave behind. It uses goleak, but waits longer than goleak for
// goroutines that are about to exit on a busy machine.
package leaks

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

const timeout = time.Minute

// Find waits until there are no goroutines except those that options exclude. If that takes longer than the
// timeout, it returns an error with the remaining goroutines.
func Find(options ...goleak.Option) error {
	for end := time.Now().Add(timeout); ; {
		if err := goleak.Find(options...); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// Main is a TestMain function that fails if tests have left goroutines behind.
func Main(m *testing.M, options ...goleak.Option) { goleak.VerifyTestMain(waitingM{m}, options...) }

type waitingM struct{ *testing.M }

func (p waitingM) Run() (status int) {
	if status = p.M.Run(); status == 0 {
		_ = Find() // goleak reports the error
	}
	return status
}
