//go:build !windows

package conformance

import "errors"

func watchNative(*env) (watcher, error) { return nil, errors.ErrUnsupported }
