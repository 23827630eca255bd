//go:build !linux

package caddy

func runRole() bool { return false }
