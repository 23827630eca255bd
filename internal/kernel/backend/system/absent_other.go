//go:build !linux && !windows

package system

func absent(string) error { return nil }
