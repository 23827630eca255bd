//go:build !unix && !windows

package facts

import (
	"errors"
	"runtime"
)

func peek(uintptr) bool              { return false }
func sendUrgent(uintptr) error       { return errors.ErrUnsupported }
func duplicate(uintptr) (dup, error) { return 0, errors.ErrUnsupported }
func (dup) Close() error             { return nil }
func version() string                { return runtime.GOOS }

var errNotConnected = errors.ErrUnsupported
