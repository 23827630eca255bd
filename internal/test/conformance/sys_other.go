//go:build !unix && !windows

package conformance

import "errors"

// States that settle waits for.
type state uint8

const (
	stateIn state = 1 << iota
	stateOut
	stateErr
	stateDead
	statePeerClosed
	stateUrgent
)

var errSystem = errors.New("no helpers for this system yet")

// The system's errors for a number that is not open, and for what is no socket.
var errNotOpen, errNoSocket, errRefused, errReset = errSystem, errSystem, errSystem, errSystem

// noHelper skips a case that needs what this system has no helper for yet.
func (e *env) noHelper() {
	if errSystem != nil {
		e.Skip(errSystem)
	}
}

const tellsLate = false

func settle(e *env, _ handle, _ state)           { e.noHelper() }
func (e *env) packets() (a, b fd)                { e.noHelper(); return 0, 0 }
func (e *env) closeFD(fd)                        { e.noHelper() }
func (e *env) dup(handle) fd                     { e.noHelper(); return 0 }
func (e *env) become(uintptr, handle) fd         { e.noHelper(); return 0 }
func (e *env) tryBecome(uintptr, handle, int) fd { e.noHelper(); return 0 }
func (e *env) sendUrgent(handle)                 { e.noHelper() }
func (e *env) sendEmpty(handle)                  { e.noHelper() }
func (e *env) shutListener(handle)               { e.noHelper() }
func (e *env) write(handle, string)              { e.noHelper() }
func (e *env) noSockets() map[string]fd          { e.noHelper(); return nil }
