//go:build !linux

package tunnel

func runRole() bool { return false }
