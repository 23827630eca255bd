//go:build unix

package handover

import "syscall"

// closeOnExec closes a descriptor in the processes that this one starts.
func closeOnExec(fd uintptr) { syscall.CloseOnExec(int(fd)) }
