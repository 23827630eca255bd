package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/examples/internal/client"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// demo runs a command line in this process.
func demo(ctx context.Context, line string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = run(ctx, strings.Fields(line), &out, &err)
	return status, out.String(), err.String()
}

func TestDemo(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		status, out, errs := demo(t.Context(), "-backend "+backend)
		if status != 0 || errs != "" ||
			strings.Count(out, "  ok") != 3 || strings.Count(out, backend) < 3 {
			t.Errorf("status %d: %s%s", status, out, errs)
		}
	})
}

// A failure is in the output and in the exit status.
func TestFailure(t *testing.T) {
	backendtest.Need(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	status, out, errs := demo(ctx, "")
	if status != 1 || strings.Count(out, "FAILED") != 3 || errs == "" {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	for _, o := range []outcome{{Result: client.Result{ExpectedBytes: 1}}, {clients: 1}} {
		if o.judge(nil) == nil {
			t.Errorf("%+v passes", o)
		}
	}
}

func TestWrongUsage(t *testing.T) {
	backendtest.Need(t)
	for _, line := range []string{"-backend abacus", "-abacus"} {
		status, out, errs := demo(t.Context(), line)
		if status != 2 || out != "" || !strings.Contains(errs, "abacus") {
			t.Errorf("%s: status %d, output %q, errors %q", line, status, out, errs)
		}
	}
	t.Setenv(socknotify.BackendEnv, "abacus")
	if status, _, errs := demo(t.Context(), ""); status != 2 || !strings.Contains(errs, socknotify.BackendEnv) {
		t.Errorf("status %d: %s", status, errs)
	}
}
