//go:build !linux

package websocket

func playRole() bool { return false }
