//go:build !linux

package sse

func playRole() bool { return false }
