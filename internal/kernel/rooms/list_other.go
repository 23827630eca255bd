//go:build !unix && !windows

package rooms

// sure is empty: no kernel of this system has a room yet.
func sure() []Room { return nil }
