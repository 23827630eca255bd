//go:build unix && !linux

package nowait

import "golang.org/x/sys/unix"

func read(fd int, b []byte) (int, error)  { return unix.Read(fd, b) }
func write(fd int, b []byte) (int, error) { return unix.Write(fd, b) }
