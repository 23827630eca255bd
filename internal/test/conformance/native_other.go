//go:build !windows

package conformance

import "errors"

func watchNative(*env, uintptr) (*watcher, error) { return nil, errors.ErrUnsupported }
