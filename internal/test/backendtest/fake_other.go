//go:build !linux

package backendtest

import "github.com/socknotify/socknotify/internal/backend/system"

func fakes() ([]system.Backend, map[string]error) { return nil, nil }

func fakeNamed(string) (system.Backend, error) { return system.Backend{}, errUnknown }
