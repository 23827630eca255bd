//go:build !linux

package conformance

import (
	"errors"
	"time"
)

// States that settle waits for.
const (
	stateIn int16 = 1 << iota
	stateOut
	stateErr
	stateDead
	statePeerClosed
)

// An fd is a socket that only this package's own helpers know.
type fd int

// Handle is the socket's number.
func (f fd) Handle() uintptr { return uintptr(f) }

var errSystem = errors.New("no helpers for this system yet")

// The system's errors for a number that is not open, and for what is no socket.
var errNotOpen, errNoSocket, errRefused, errReset = errSystem, errSystem, errSystem, errSystem

func descriptors() []string { return nil }

func settle(e *env, _ handle, _ int16)   { e.Skip(errSystem) }
func threads(e *env) int                 { e.Skip(errSystem); return 0 }
func processorTime(e *env) time.Duration { e.Skip(errSystem); return 0 }
func (e *env) closeFD(fd)                { e.Skip(errSystem) }
func (e *env) dup(handle) fd             { e.Skip(errSystem); return 0 }
func (e *env) become(uintptr, handle) fd { e.Skip(errSystem); return 0 }
func (e *env) sendUrgent(handle)         { e.Skip(errSystem) }
func (e *env) sendEmpty(handle)          { e.Skip(errSystem) }
func (e *env) shutListener(handle)       { e.Skip(errSystem) }
func (e *env) unixStream() fd            { e.Skip(errSystem); return 0 }
func (e *env) unixListen(fd) string      { e.Skip(errSystem); return "" }
func (e *env) unixConnect(fd, string)    { e.Skip(errSystem) }
func (e *env) packets() (a, b fd)        { e.Skip(errSystem); return 0, 0 }
func (e *env) write(handle, string)      { e.Skip(errSystem) }
func (e *env) noSockets() map[string]fd  { e.Skip(errSystem); return nil }
