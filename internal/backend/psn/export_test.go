package psn

import "time"

// SetAddWait sets addWait until restore is called.
func SetAddWait(d time.Duration) (restore func()) {
	was := addWait
	addWait = d
	return func() { addWait = was }
}
