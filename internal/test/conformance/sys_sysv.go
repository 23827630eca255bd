//go:build aix || solaris

package conformance

// ownNoSockets is empty: no package of ours opens an event port or a pollset.
var ownNoSockets map[string]func() (int, error)
