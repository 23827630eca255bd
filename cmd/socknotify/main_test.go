package main

import (
	"bytes"
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

// asCommand is the environment variable with which the test program is the command.
const asCommand = "SOCKNOTIFY_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	leaks.Main(m)
}

// sh runs a command line in this process.
func sh(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	status = run(t.Context(), args, &out, &err)
	return status, out.String(), err.String()
}

// decode reads one JSON object with no fields but those of v.
func decode(t *testing.T, text string, v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if d.More() {
		t.Fatalf("more than one object: %s", text)
	}
}

func TestWrongUsage(t *testing.T) {
	backendtest.Need(t)
	for _, c := range []struct{ args, says string }{
		{"serve echo --backend abacus", `--backend: socknotify: WithBackend: backend "abacus" is not available`},
		{"serve echo --workers 999999999", "--workers"},
		{"serve echo extra", `"extra"`},
		{"serve abacus", `"abacus"`},
		{"load --abacus", "--abacus"},
		{"help abacus", `"abacus"`},
		{"help serve abacus", `"abacus"`},
		{"info extra", `"extra"`},
		{"abacus", `"abacus"`},
	} {
		status, out, errs := sh(t, strings.Fields(c.args)...)
		if status != 2 || out != "" || !strings.Contains(errs, c.says) {
			t.Errorf("%s: status %d, output %q, errors %q", c.args, status, out, errs)
		}
	}
}

func TestBackendVariable(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, b string) {
		t.Setenv(socknotify.BackendEnv, b)
		status, out, errs := sh(t, "info", "--json")
		var f facts
		decode(t, out, &f)
		if status != 0 || f.Backend != b {
			t.Errorf("%s: status %d, backend %s: %s", b, status, f.Backend, errs)
		}
	})
	t.Setenv(socknotify.BackendEnv, "abacus")
	if status, _, errs := sh(t, "info"); status != 2 || !strings.Contains(errs, socknotify.BackendEnv) {
		t.Errorf("status %d: %s", status, errs)
	}
}

func TestInfo(t *testing.T) {
	status, out, errs := sh(t, "info", "--json")
	if status != 0 || errs != "" {
		t.Fatalf("status %d: %s", status, errs)
	}
	var f facts
	decode(t, out, &f)
	if len(f.Backends) != len(socknotify.Backends()) || f.Versions.Go != runtime.Version() || f.Versions.Module == "" {
		t.Error(out)
	}
	for i, name := range socknotify.Backends() {
		if b := f.Backends[i]; b.Name != name || b.Error != "" {
			t.Errorf("%+v", b)
		}
	}
	if status, out, _ := sh(t, "info"); status != 0 || !strings.Contains(out, runtime.Version()) {
		t.Errorf("status %d: %s", status, out)
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{}, {"help"}, {"serve", "--help"}, {"--version"}} {
		if status, out, errs := sh(t, args...); status != 0 || out == "" || errs != "" {
			t.Errorf("%q: status %d, output %q, errors %q", args, status, out, errs)
		}
	}
}
