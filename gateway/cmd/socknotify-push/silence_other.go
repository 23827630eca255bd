//go:build !linux

package main

import "net"

// boundSilence does nothing on this system.
func boundSilence(net.Conn) {}
