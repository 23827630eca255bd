//go:build !linux

package qemu

func emulated() bool { return false }

func probed() map[Deviation]bool { return nil }
