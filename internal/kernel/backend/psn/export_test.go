package psn

// NoWaits lets the time of addWait and removalWait be over at once until restore is called, as in a process that was
// stopped.
func NoWaits() (restore func()) {
	add, removal := addWait, removalWait
	addWait, removalWait = 0, 0
	return func() { addWait, removalWait = add, removal }
}
