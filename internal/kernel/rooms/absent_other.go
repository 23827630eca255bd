//go:build !linux && !windows

package rooms

import "errors"

// Absent tells why a room is not in List. The error is errors.ErrUnsupported.
func Absent(string) error { return errors.ErrUnsupported }
