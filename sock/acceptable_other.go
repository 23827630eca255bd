//go:build !linux

package sock

func sysAcceptable(uintptr) bool { return true }
