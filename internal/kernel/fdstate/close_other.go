//go:build !unix && !windows

package fdstate

import "errors"

func closeHandle(uintptr) error { return errors.ErrUnsupported }
