package udp

import (
	"context"
	"errors"
	"testing"

	"github.com/socknotify/socknotify/examples/internal/client"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestRun(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, datagrams := range []int{1, client.Window, 1000} {
			res, err := Run(t.Context(), Config{Backend: backend, Datagrams: datagrams})
			if err != nil {
				t.Fatal(err)
			}
			if res.Datagrams != datagrams || res.Bytes != res.ExpectedBytes {
				t.Errorf("%d datagrams: %+v", datagrams, res)
			}
			if res.Hangups != 0 || res.Removals != 1 || res.Notifications == 0 {
				t.Errorf("%d datagrams: %+v", datagrams, res)
			}
		}
	})
}

// A context that is done ends both sides.
func TestCancelled(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(stop)
		res, err := Run(ctx, Config{Backend: backend, Datagrams: 1})
		if !errors.Is(err, stop) && !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if res.Removals != 1 {
			t.Errorf("%d removals", res.Removals)
		}
	})
}

func TestNoSuchBackend(t *testing.T) {
	if _, err := Run(t.Context(), Config{Backend: "abacus", Datagrams: 1}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}
