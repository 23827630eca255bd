//go:build !unix && !windows

package tie

import "errors"

func closeHandle(uintptr) error { return errors.ErrUnsupported }
