//go:build !linux

package backendtest

import "github.com/socknotify/socknotify/internal/backend/system"

func fake(string) (system.Backend, error) { return system.Backend{}, errUnknown }
