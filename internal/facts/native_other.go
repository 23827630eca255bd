//go:build !windows

package facts

import "errors"

func openNative() (api, error) { return nil, errors.ErrUnsupported }
