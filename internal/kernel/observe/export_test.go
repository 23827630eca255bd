package observe

const (
	StateFired      = stateFired
	StateSuppressed = stateSuppressed
	StateDisabled   = stateDisabled
)
