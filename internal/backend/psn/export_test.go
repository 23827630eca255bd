package psn

import "time"

// SetPatience sets how long an addition waits at least, until it is set back.
func SetPatience(d time.Duration) (restore func()) {
	was := patience
	patience = d
	return func() { patience = was }
}
