//go:build !linux

package backendtest

import "github.com/socknotify/socknotify/internal/backend/system"

func fakes() []system.Backend { return nil }

func fake(string) (system.Backend, bool) { return system.Backend{}, false }
