//go:build !windows

package wine

// Version returns "", because this system is not Wine.
func Version() string { return "" }

func deviates(Deviation) bool { return false }
