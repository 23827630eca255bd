package backendtest

// preferred are backends that are left out of the system's own list where the system refuses them.
var preferred = []string{"psn"}
