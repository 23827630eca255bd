//go:build !linux

package park

func runRole() bool { return false }
