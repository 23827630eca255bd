//go:build unix && !linux

package system_test

import "github.com/socknotify/socknotify/internal/kernel/backend/system"

func fakes() []system.Backend { return nil }
