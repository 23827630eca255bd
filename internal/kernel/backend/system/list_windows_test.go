package system_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend/psn"
)

// If ProcessSocketNotifications works, psn is the default. If not, choosing psn fails with the reason.
func TestNativeIsFirstOrAbsent(t *testing.T) {
	names := socknotify.Backends()
	why := psn.Supported()
	if why == nil {
		if !slices.Equal(names, []string{"psn", "afd"}) {
			t.Fatalf("backends %v", names)
		}
		return
	}
	t.Log(why)
	if !slices.Equal(names, []string{"afd"}) {
		t.Fatalf("backends %v; want afd alone: %v", names, why)
	}
	t.Setenv(socknotify.BackendEnv, "psn")
	for from, opts := range map[string][]socknotify.Option{
		"WithBackend": {socknotify.WithBackend("psn")}, socknotify.BackendEnv: nil,
	} {
		p, err := socknotify.New[int](opts...)
		if p != nil || !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, why) {
			t.Errorf("%s: %v; want %v", from, err, why)
		}
		t.Log(err)
	}
}
