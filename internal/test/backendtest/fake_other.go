//go:build !linux

package backendtest

import "github.com/socknotify/socknotify/internal/kernel/backend/system"

func fake(string) (system.Backend, error) { return system.Backend{}, errUnknown }
