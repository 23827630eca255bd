package debug_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
)

func TestNames(t *testing.T) {
	for k, want := range map[debug.TraceKind]string{debug.TraceNotified: "notified", debug.TracePosted: "posted", debug.TraceCompleted: "completed", 77: "77"} {
		if got, err := k.MarshalText(); string(got) != want || err != nil {
			t.Errorf("%d: %s, %v", k, got, err)
		}
	}
	for s, want := range map[debug.State]string{debug.StateEnabled: "enabled", debug.StateStopped: "stopped", debug.StateOverlapped: "overlapped", 77: "77"} {
		if got, err := s.MarshalText(); string(got) != want || err != nil {
			t.Errorf("%d: %s, %v", s, got, err)
		}
	}
}

// The error for a nil RegistrationInfo contains the name of the call. If the port is closed, the error is ErrClosed.
func TestAddressesNil(t *testing.T) {
	p := newPort[string](t)
	_, err := debug.Addresses(p, nil)
	if !errors.Is(err, socknotify.ErrInvalid) || !strings.HasPrefix(err.Error(), "socknotify: Addresses: ") {
		t.Errorf("%v; want ErrInvalid, and the name of the call", err)
	}
	p.Close()
	if _, err := debug.Addresses(p, nil); err != socknotify.ErrClosed {
		t.Errorf("%v; want ErrClosed", err)
	}
}

// TakeSnapshot works for a port of any key type.
func TestPortKeyTypes(t *testing.T) {
	type pair struct {
		a string
		b int
	}
	verifyKey(t, 1)
	verifyKey(t, "one")
	verifyKey(t, pair{"one", 1})
	verifyKey(t, &pair{"one", 1})
	verifyKey[any](t, pair{"one", 1})
}

func verifyKey[K comparable](t *testing.T, key K) {
	t.Helper()
	p := newPort[K](t)
	s := newUDP(t)
	enable(t, p, s, key, socknotify.EventIn)
	all := debug.TakeSnapshot(p, 0, 10).Registrations
	if len(all) != 1 || all[0].Key != key || all[0].Socket != s.Handle() {
		t.Errorf("%+v; want socket %d with key %v", all, s.Handle(), key)
	}
}
