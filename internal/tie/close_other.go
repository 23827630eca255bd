//go:build !unix

package tie

import "errors"

func closeHandle(uintptr) error { return errors.ErrUnsupported }
