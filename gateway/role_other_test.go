//go:build !linux

package gateway

func playRole() bool { return false }
